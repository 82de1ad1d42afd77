"""Submits an app: creates its folder, and starts its processes and their supervision."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.submission import announce, withdraw
from torchx_sched_local.errors import folder_error
from torchx_sched_local.request import PopenRequest, ReplicaParam, request_to_dict
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import describe_starter
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.reap import end_processes
from torchx_sched_local.supervise.replicas import _LocalAppDef, _LocalReplica
from torchx_sched_local.supervise.start_replicas import launch
from torchx_sched_local.supervise.start_supervisor import CONFIRMATION, start_supervisor
from torchx_sched_local.supervise.supervision import Policy
from torchx_specs.errors import ConfigError, SerializationError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from io import FileIO

    #: Starts a replica: called with the name of its role, its index, and how to start it.
    Popen = Callable[[str, int, ReplicaParam], _LocalReplica]


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
        self._starter = describe_starter()
        self._created = time.time()

    def start_attached(self, reactor: Reactor, popen: Popen) -> _LocalAppDef:
        """Start the processes, supervised by this process.

        Args:
            reactor: Runs the supervision. The caller must have called its method ``hold`` for this
                app; the end of the app calls ``release``.
            popen: Starts a replica.

        Raises:
            RequestError: None of the programs can be run, or the folder cannot be written.
            BackendError: The machine cannot run the app.
        """
        local_app = _LocalAppDef(self._request.app_id, self._request.log_dir, self._info)

        def start() -> None:
            supervision, running = launch(
                reactor,
                self._folder,
                self._request,
                policies(self._info),
                popen,
                local_app,
                starter=self._starter,
                fail_together=option(self._info, "fail_together"),
            )
            local_app.supervision = supervision
            local_app.set_state(AppState.RUNNING)
            supervision.on_end.append(local_app.set_state)
            reactor.call_soon(lambda: supervision.begin(running))

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
            end_processes(self._request.app_id, self._starter["began"])
            raise
        finally:
            self._folder.close()

    def _in_new_folder(self, start: Callable[[], None]) -> None:
        """Create the app's folder and call ``start``; delete the folder if ``start`` fails."""
        try:
            self._folder.create(layout.session_folder(self._session))
        except FileExistsError as e:
            raise folder_error(self._folder.path, e) from e
        except OSError as e:
            self._remove()
            raise folder_error(self._folder.path, e) from e
        try:
            self._folder.write(self._description(), self._request, request_to_dict(self._request))
            self._add_to_index()
            start()
        except OSError as e:
            self._remove()
            raise folder_error(self._folder.path, e) from e
        except BaseException:
            self._remove()
            raise

    def _description(self) -> dict[str, Any]:
        request, app = self._request, self._info.app
        roles = [
            {
                "name": role,
                "replicas": len(params),
                "max_retries": policy.max_retries,
                "retry_policy": policy.what.value,
                "ends_app": policy.ends_app,
            }
            for (role, params), policy in zip(
                request.role_params.items(), policies(self._info), strict=True
            )
        ]
        return {
            "app_id": request.app_id,
            "session": self._session,
            "name": app.name if app else request.app_id,
            "created": self._created,
            "starter": self._starter,
            "appdef": _app_to_dict(app),
            "fail_together": option(self._info, "fail_together"),
            "roles": roles,
            "requeue": request.attempts is not None,
            "elements": request.elements and [name for name, _, _ in request.elements],
        }

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


def policies(info: AppDryRunInfo[PopenRequest]) -> list[Policy]:
    """Return the retry policy of each role of the request."""
    roles = {role.name: role for role in info.app.roles} if info.app else {}
    return [
        Policy(role.max_retries, role.retry_policy, bool(role.metadata.get(ENDS_APP_KEY)))
        if (role := roles.get(name))
        else Policy()
        for name in info.request.role_params
    ]


def option(info: AppDryRunInfo[Any], name: str) -> bool:
    """Return a boolean option of a dry run, or False if the dry run's ``cfg`` is not a mapping."""
    return isinstance(info.cfg, Mapping) and bool(info.cfg.get(name))


def _app_to_dict(app: AppDef | None) -> dict[str, Any] | None:
    if app is None:
        return None
    try:
        return serialize.to_dict(app)
    except SerializationError:
        return None  # other processes see the roles of the request instead
