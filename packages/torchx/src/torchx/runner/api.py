"""Older path of the Runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx.schedulers._factories import SchedulerFactory as SchedulerFactory
    from torchx.schedulers._factories import get_scheduler_factories as get_scheduler_factories
    from torchx_runner.api import *
    from torchx_runner.config import get_config as get_config
    from torchx_runner.config import get_configs as get_configs
    from torchx_runner.events import log_event as log_event
    from torchx_runner.finder import get_component as get_component
    from torchx_runner.session import get_session_id_or_create_new as get_session_id_or_create_new
    from torchx_specs.arguments.types import none_throws as none_throws
    from torchx_specs.settings import ENV_TORCHX_JOB_ID as ENV_TORCHX_JOB_ID
    from torchx_specs.settings import ENV_TORCHX_PARENT_RUN_ID as ENV_TORCHX_PARENT_RUN_ID
    from torchx_specs.settings import ENV_TORCHX_TRACKERS as ENV_TORCHX_TRACKERS
    from torchx_specs.settings import tracker_config_env_var_name as tracker_config_env_var_name
    from torchx_specs.workspace import WorkspaceMixin as WorkspaceMixin

forward(
    __name__,
    "torchx_runner.api",
    "torchx_specs",
    "torchx_specs.schedulers.api",
    names={
        "none_throws": "torchx_specs.arguments.types",
        "get_component": "torchx_runner.finder",
        "get_config": "torchx_runner.config",
        "get_configs": "torchx_runner.config",
        "log_event": "torchx_runner.events",
        "get_scheduler_factories": "torchx.schedulers._factories",
        "SchedulerFactory": "torchx.schedulers._factories",
        "WorkspaceMixin": "torchx_specs.workspace",
        "tracker_config_env_var_name": "torchx_specs.settings",
        "get_session_id_or_create_new": "torchx_runner.session",
        "ENV_TORCHX_JOB_ID": "torchx_specs.settings",
        "ENV_TORCHX_PARENT_RUN_ID": "torchx_specs.settings",
        "ENV_TORCHX_TRACKERS": "torchx_specs.settings",
    },
)
