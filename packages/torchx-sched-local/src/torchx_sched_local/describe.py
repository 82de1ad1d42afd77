"""Describes an app from its stored state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from torchx_kit.jobs.attempts import committed_step
from torchx_kit.jobs.error_files import READ_BYTES, error_text
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.times import moment
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest
from torchx_sched_local.store.app_run import AppRun
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import (
    AppState,
    AttemptStatus,
    ReplicaStatus,
    RoleStatus,
    is_terminal,
)
from torchx_specs.schedulers.api import DescribeAppResponse

#: The host name of every replica in descriptions.
HOST = "localhost"


def describe(run: AppRun, app: AppDef | None) -> DescribeAppResponse:
    """Return the description of an app.

    Args:
        run: The state of the app and its replicas.
        app: The submitted app, or None if it is not stored.
    """
    request = run.request
    error_files = find_error_files(request)
    return DescribeAppResponse(
        app_id=run.app_id,
        state=run.state,
        num_restarts=run.num_restarts,
        msg=run.msg or NONE,
        structured_error_msg=first_error(error_files.values()),
        ui_url=None if request is None else f"file://{request.log_dir}",
        metadata=dict(app.metadata) if app else {},
        roles_statuses=_role_statuses(run, error_files),
        roles=list(app.roles) if app else _roles(run),
        submitted=moment(run.created),
        started=moment(run.started),
        ended=moment(run.last_updated) if is_terminal(run.state) else None,
        attempts=_attempts(run) if request is not None and request.attempts else [],
    )


def find_error_files(request: PopenRequest | None) -> dict[tuple[str, int], str]:
    """Return the paths of the error files that exist, by role and replica."""
    all_params = {} if request is None else request.role_params
    paths = {
        (role, k): param.env.get(ENV_ERROR_FILE, "")
        for role, params in all_params.items()
        for k, param in enumerate(params)
    }
    return {replica: path for replica, path in paths.items() if os.path.isfile(path)}


def first_error(paths: Iterable[str]) -> str:
    """Return the content of the oldest error file; ``<NONE>`` if no file exists."""
    by_age = []
    for path in paths:
        with contextlib.suppress(OSError):
            by_age.append((os.stat(path).st_mtime_ns, path))
    return read_error(min(by_age)[1]) if by_age else NONE


def read_error(path: str) -> str:
    """Return the content of an error file, as compact JSON if the content is JSON.

    The result is ``<NONE>`` if the file is empty or cannot be read. A long content is shortened;
    see :func:`~torchx_kit.jobs.error_files.error_text`.
    """
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            content = file.read(READ_BYTES)
            size = max(os.fstat(file.fileno()).st_size, len(content))
    except OSError:
        return NONE
    return error_text(content, size, path) or NONE


def _role_statuses(run: AppRun, error_files: dict[tuple[str, int], str]) -> list[RoleStatus]:
    return [
        RoleStatus(
            role,
            [
                ReplicaStatus(
                    id=r.id,
                    state=r.state,
                    role=role,
                    hostname=HOST,
                    structured_error_msg=(
                        read_error(error_files[role, r.id])
                        if r.state == AppState.FAILED and (role, r.id) in error_files
                        else NONE
                    ),
                    reason=r.reason,
                    exit_code=r.exit_code,
                    node=run.node or None,
                    restarts=max(r.restarts, 0),
                    started=moment(r.started),
                    ended=moment(r.ended),
                )
                for r in replicas
            ],
        )
        for role, replicas in run.roles.items()
    ]


def _attempts(run: AppRun) -> list[AttemptStatus]:
    steps = run.steps()
    nodes = (run.node,) if run.node else ()
    attempts = [
        AttemptStatus(
            number,
            moment(one.started),
            moment(one.ended),
            one.reason,
            steps[number],
            one.step,
            nodes,
        )
        for number, one in enumerate(run.ended_attempts)
    ]
    if len(attempts) == run.num_restarts:  # the last one has not ended, or nobody recorded its end
        has_ended = is_terminal(run.state)
        attempts.append(
            AttemptStatus(
                len(attempts),
                moment(run.started),
                moment(run.last_updated) if has_ended else None,
                run.state.name.lower() if has_ended else None,
                steps[-1],
                committed_step(run.resume_dir),
                nodes,
            )
        )
    return attempts


def _roles(run: AppRun) -> list[Role]:
    roles = []
    for name, replicas in run.roles.items():
        params = run.request.role_params.get(name) if run.request else None
        program, args = (params[0].args[0], params[0].args[1:]) if params else ("", [])
        roles.append(
            Role(name, image="", entrypoint=program, args=args, num_replicas=len(replicas))
        )
    return roles
