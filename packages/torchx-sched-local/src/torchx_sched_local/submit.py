"""Submits an app: creates its folder, and starts its processes and their supervision."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.submission import announce, withdraw
from torchx_sched_local.errors import folder_error
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, describe_starter
from torchx_sched_local.supervise.reap import end_processes
from torchx_sched_local.supervise.replicas import _LocalAppDef
from torchx_sched_local.supervise.start_supervisor import CONFIRMATION, start_supervisor
from torchx_sched_local.supervise.supervision import Popen, Supervision
from torchx_sched_local.workspaces import copy_workspaces
from torchx_specs.errors import ConfigError, SerializationError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDryRunInfo, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from io import FileIO


class Submission:
    """Creates an app's folder and starts the app's processes.

    Args:
        info: The app's dry run.
        session: Name of the session, as in the app handle.
    """

    def __init__(self, info: AppDryRunInfo[PopenRequest], session: str) -> None:
        self._info = info
        self._request = info.request
        self._session = session
        self._folder = AppFolder(info.request.log_dir)
        self._data = _describe_app(info, session)

    def start_attached(self, popen: Popen) -> _LocalAppDef:
        """Start the processes, supervised by a thread of this process.

        Args:
            popen: Starts a replica.

        Raises:
            RequestError: None of the programs can be run, or the folder cannot be written.
            BackendError: The machine cannot run the app.
        """
        local_app = _LocalAppDef(self._request.app_id, self._request.log_dir, self._info)

        def start() -> None:
            run = AppRun(self._data, self._request)
            supervision = Supervision(self._folder, run, self._request, popen, local_app)
            supervision.start()
            local_app.set_state(AppState.RUNNING)
            supervision.reactor.call_soon(supervision.begin)

        self._in_new_folder(start)
        return local_app

    def start_detached(self) -> None:
        """Start a supervisor process, which starts the app's processes.

        Raises:
            RequestError: None of the programs can be run, or the folder cannot be written.
            BackendError: The machine cannot run the app.
        """
        read_end, write_end = os.pipe()
        with open(read_end, "rb", 0) as confirmation, open(write_end, "wb", 0) as confirm:
            self._in_new_folder(lambda: self._start_supervisor(confirmation, confirm))
            # An interrupt that comes later does not undo the start.
            confirm.write(CONFIRMATION)

    def _start_supervisor(self, confirmation: FileIO, confirm: FileIO) -> None:
        announce(self._request.app_id)
        try:
            start_supervisor(self._folder, self._request.app_id, confirmation, confirm)
        except BaseException:
            # The supervisor or its guard ends the started processes, too. This process must not
            # rely on them, because it deletes the folder next.
            end_processes(self._request.app_id, self._data["starter"]["began"])
            raise
        finally:
            self._folder.close()

    def _in_new_folder(self, start: Callable[[], None]) -> None:
        """Create the app's folder and call ``start``; delete the folder if ``start`` fails."""
        try:
            self._folder.create(layout.session_folder(self._session))
        except OSError as e:
            if not isinstance(e, FileExistsError):
                self._remove()
            raise folder_error(self._folder.path, e) from e
        try:
            self._folder.begin_journal(self._data, self._request)
            self._add_to_index()
            if self._request.workspaces:
                copy_workspaces(self._folder, self._request.workspaces)
            start()
        except BaseException as e:
            self._remove()
            if isinstance(e, OSError):
                raise folder_error(self._folder.path, e) from e
            raise

    def _add_to_index(self) -> None:
        try:
            index.add(self._request.app_id, self._folder.path)
        except (OSError, ConfigError) as e:
            if self._folder.path.startswith(layout.base_folder() + os.sep):
                raise
            import logging

            logging.getLogger(__name__).warning(
                "other processes cannot find app %s, because the index cannot be written: %s",
                self._request.app_id,
                e,
            )

    def _remove(self) -> None:
        """Delete the folder of an app that was not started, and then its link in the index."""
        try:
            self._folder.delete()
        except OSError:
            return  # the app stays in the index, and can be deleted by its id
        index.remove(self._request.app_id)
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
