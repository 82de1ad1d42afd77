"""Sets the runner's environment variables in every role, and corrects names that contain ``=``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torchx_runner.session_id import get_session_id_or_create_new
from torchx_specs.model.handles import make_app_handle
from torchx_specs.model.templates import macros
from torchx_specs.settings import (
    ENV_TORCHX_INTERNAL_SESSION_ID,
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_NUM_REPLICAS,
    ENV_TORCHX_PARENT_RUN_ID,
    ENV_TORCHX_ROLE,
)

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef


def split_variable_names(app: AppDef) -> None:
    """Rename each environment variable whose name contains ``=`` to the name that a process sees.

    The first ``=`` separates name and value in the environment of a process: ``{"A=1": "2"}`` is
    the variable ``A`` with the value ``1=2``. torchft's launcher for Slurm writes such names.

    Args:
        app: The app; changed in place.
    """
    for role in app.roles:
        for key in [key for key in role.env if "=" in key]:
            name, _, rest = key.partition("=")
            logging.getLogger(__name__).warning(
                "role '%s': the name of env variable '%s' contains '=': the job sees '%s', with"
                " '%s=' before the value",
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
    untracked: Callable[[str], Mapping[str, str]] | None = None,
) -> None:
    """Set the environment variables for the job's id, session, roles, parent run and trackers.

    ``TORCHX_JOB_ID``, ``TORCHX_INTERNAL_SESSION_ID``, ``TORCHX_ROLE``, ``TORCHX_NUM_REPLICAS`` and
    an explicit ``parent_run_id`` replace the values in ``Role.env``. The variables of trackers, and
    a parent run from the environment of this process, do not replace values in ``Role.env``.

    Args:
        app: The app; changed in place.
        scheduler: Name of the scheduler.
        session: Name of the session.
        parent_run_id: The id of the parent run; None means ``$TORCHX_PARENT_RUN_ID``.
        trackers: The configuration of each tracker, by name.
        untracked: Called with the name of the scheduler if there are no trackers; returns variables
            that do not replace values in ``Role.env``, either.
    """
    fixed = {
        # The scheduler replaces the macro in this handle with the app's id.
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
    elif untracked is not None:
        defaults.update(untracked(scheduler))
    for role in app.roles:
        own = {ENV_TORCHX_ROLE: role.name, ENV_TORCHX_NUM_REPLICAS: str(role.num_replicas)}
        role.env.update({**defaults, **role.env, **fixed, **own})
