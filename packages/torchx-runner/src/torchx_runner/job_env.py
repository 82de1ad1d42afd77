"""The environment that the runner gives to every role."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchx_runner.session import get_session_id_or_create_new
from torchx_specs.model.handles import make_app_handle
from torchx_specs.model.templates import macros
from torchx_specs.settings import (
    ENV_TORCHX_INTERNAL_SESSION_ID,
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_PARENT_RUN_ID,
)

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef


def split_variable_names(app: AppDef) -> None:
    """Gives a variable whose name holds a ``=`` the name that a process would see.

    Nothing but the first ``=`` divides name and value in a process's environment, so ``{"A=1":
    "2"}`` always was ``A`` with the value ``1=2``. torchft's launcher for Slurm writes such a name.

    Args:
        app: changed in place
    """
    for role in app.roles:
        for key in [key for key in role.env if "=" in key]:
            name, _, rest = key.partition("=")
            logging.getLogger(__name__).warning(
                "role '%s': env has '%s', which is no name: the job sees '%s', with '%s=' before"
                " the value",
                role.name,
                key,
                name,
                rest,
            )
            role.env[name] = f"{rest}={role.env.pop(key)}"


def set_job_variables(
    app: AppDef,
    scheduler: str,
    session: str,
    parent_run_id: str | None,
    trackers: Mapping[str, str | None],
) -> None:
    """Sets what a job has to know of its launch in the environment of each role.

    ``TORCHX_JOB_ID`` and ``TORCHX_INTERNAL_SESSION_ID`` are always set. Trackers and their
    configuration, and the parent run of the launcher's own environment, give way to what a role
    sets itself; an explicit ``parent_run_id`` does not.

    Args:
        app: changed in place
        scheduler: name of the scheduler
        session: name of the runner
        parent_run_id: the run that this one belongs to
        trackers: configurations by name
    """
    fixed = {
        # the scheduler fills in the app's id
        ENV_TORCHX_JOB_ID: make_app_handle(scheduler, session, macros.app_id),
        ENV_TORCHX_INTERNAL_SESSION_ID: get_session_id_or_create_new(),
    }
    defaults: dict[str, str] = {}
    if parent_run_id:
        fixed[ENV_TORCHX_PARENT_RUN_ID] = parent_run_id
    elif inherited := os.environ.get(ENV_TORCHX_PARENT_RUN_ID):
        defaults[ENV_TORCHX_PARENT_RUN_ID] = inherited
    if trackers:
        from torchx_runner.tracker_configs import job_environment

        defaults.update(job_environment(trackers))
    for role in app.roles:
        for key, value in defaults.items():
            role.env.setdefault(key, value)
        role.env.update(fixed)
