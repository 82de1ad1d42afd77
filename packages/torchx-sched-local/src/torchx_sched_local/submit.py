"""Submits an app: creates its folder, and starts its processes and their supervision."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from torchx_kit.jobs.submission import announce, withdraw
from torchx_sched_local.errors import folder_error
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import describe_starter
from torchx_sched_local.supervise.processes.replica_processes import terminate_all
from torchx_sched_local.supervise.replicas import _LocalAppDef
from torchx_sched_local.supervise.start_supervisor import CONFIRMATION, start_supervisor
from torchx_sched_local.supervise.supervision import Popen, Supervision
from torchx_sched_local.workspaces import copy_workspaces
from torchx_specs.errors import ConfigError, SerializationError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDryRunInfo, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.status import AppState


def start_attached(info: AppDryRunInfo[PopenRequest], session: str, popen: Popen) -> _LocalAppDef:
    """Start the processes of an app, supervised by a thread of this process.

    Args:
        info: The app's dry run.
        session: Name of the session, as in the app handle.
        popen: Starts a replica.

    Raises:
        RequestError: None of the programs can be run, or the folder cannot be written.
        BackendError: The machine cannot run the app.
    """
    local_app = _LocalAppDef(info.request.app_id, info.request.log_dir, info)

    def start(folder: AppFolder) -> None:
        supervision = Supervision(folder, info.request, popen, local_app)
        supervision.start()
        local_app.set_state(AppState.RUNNING)
        supervision.reactor.call_soon(supervision.begin)

    _in_new_folder(info, session, start)
    return local_app


def start_detached(info: AppDryRunInfo[PopenRequest], session: str) -> None:
    """Start a supervisor process, which starts the app's processes.

    Args:
        info: The app's dry run.
        session: Name of the session, as in the app handle.

    Raises:
        RequestError: None of the programs can be run, or the folder cannot be written.
        BackendError: The machine cannot run the app.
    """
    read_end, write_end = os.pipe()
    with open(read_end, "rb", 0) as confirmation, open(write_end, "wb", 0) as confirm:

        def start(folder: AppFolder) -> None:
            announce(info.request.app_id)
            try:
                start_supervisor(folder, confirmation, confirm)
            except BaseException:
                # The supervisor or its guard ends the started processes, too. This process must
                # not rely on them, because it deletes the folder next.
                terminate_all(folder.run.find_processes, grace=0)
                raise
            finally:
                folder.close()

        _in_new_folder(info, session, start)
        # An interrupt that comes later does not undo the start.
        confirm.write(CONFIRMATION)


def _in_new_folder(
    info: AppDryRunInfo[PopenRequest], session: str, start: Callable[[AppFolder], None]
) -> None:
    """Create the app's folder and call ``start``; delete the folder if ``start`` fails."""
    request = info.request
    folder = AppFolder(request.log_dir)
    try:
        folder.create(layout.session_folder(session))
    except OSError as e:
        if not isinstance(e, FileExistsError):
            _remove(folder, request.app_id)
        raise folder_error(folder.path, e) from e
    try:
        folder.begin_journal(_describe_app(info, session), request)
        _add_to_index(folder, request.app_id)
        if request.workspaces:
            follow_links, gitignore = option(info, "follow_links"), option(info, "gitignore")
            copy_workspaces(folder, request.workspaces, follow_links, gitignore)
        start(folder)
    except BaseException as e:
        _remove(folder, request.app_id)
        if isinstance(e, OSError):
            raise folder_error(folder.path, e) from e
        raise


def _add_to_index(folder: AppFolder, app_id: str) -> None:
    try:
        index.add(app_id, folder.path)
    except (OSError, ConfigError) as e:
        if folder.path.startswith(layout.base_folder() + os.sep):
            raise
        import logging

        logging.getLogger(__name__).warning(
            "other processes cannot find app %s, because the index cannot be written: %s",
            app_id,
            e,
        )


def _remove(folder: AppFolder, app_id: str) -> None:
    """Delete the folder of an app that was not started, and then its link in the index."""
    try:
        folder.delete()
    except OSError:
        return  # the app stays in the index, and can be deleted by its id
    index.remove(app_id)
    withdraw()


def _describe_app(info: AppDryRunInfo[PopenRequest], session: str) -> dict[str, Any]:
    """Return the data of an :class:`AppRun`."""
    request, app = info.request, info.app
    known = {role.name: role for role in app.roles} if app else {}
    roles = [
        {
            "name": name,
            "replicas": len(params),
            "max_retries": role.max_retries,
            "retry_policy": role.retry_policy.value,
            "ends_app": bool(role.metadata.get(ENDS_APP_KEY)),
        }
        for name, params in request.role_params.items()
        for role in [known.get(name, Role(name, image=""))]
    ]
    appdef = None
    # If the app cannot be stored, other processes see the roles of the request instead.
    with contextlib.suppress(SerializationError):
        appdef = app and serialize.to_dict(app)
    return {
        "app_id": request.app_id,
        "session": session,
        "name": app.name if app else request.app_id,
        "created": time.time(),
        "starter": describe_starter(),
        "appdef": appdef,
        "fail_together": option(info, "fail_together"),
        "roles": roles,
        "requeue": request.attempts is not None,
        "elements": request.elements and [name for name, _, _ in request.elements],
    }


def option(info: AppDryRunInfo[Any], name: str) -> bool:
    """Return a boolean option of a dry run, or False if the dry run's ``cfg`` is not a mapping."""
    return isinstance(info.cfg, Mapping) and bool(info.cfg.get(name))
