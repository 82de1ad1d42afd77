"""Submits an app: creates its folder, and starts its processes and their supervision."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_local.errors import folder_error
from torchx_sched_local.request import PopenRequest, ReplicaParam, request_to_dict
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise import process_table, processes
from torchx_sched_local.supervise.guard import Guard, python_command
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.replicas import _LocalAppDef, _LocalReplica
from torchx_sched_local.supervise.start_replicas import spawner, start_all
from torchx_sched_local.supervise.supervision import Policy, ReplicaIndex, Supervision
from torchx_specs.errors import BackendError, RequestError, SerializationError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDef
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    #: Starts a replica: called with its role, its index and its parameters.
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

    def start_attached(self, reactor: Reactor, popen: Popen) -> _LocalAppDef:
        """Start the processes, supervised by this process.

        Args:
            reactor: Runs the supervision. The caller has called ``hold`` for this app; the app's
                end releases the reactor.
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
        self._in_new_folder(self._start_supervisor)

    def _in_new_folder(self, start: Callable[[], None]) -> None:
        """Create the app's folder and call ``start``; delete the folder if ``start`` fails."""
        try:
            self._folder.create()
        except FileExistsError as e:
            raise folder_error(self._folder.path, e) from e
        except OSError as e:
            self._remove()
            raise folder_error(self._folder.path, e) from e
        try:
            self._folder.write(self._description(), request_to_dict(self._request))
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
            }
            for (role, params), policy in zip(
                request.role_params.items(), policies(self._info), strict=True
            )
        ]
        return {
            "app_id": request.app_id,
            "session": self._session,
            "name": app.name if app else request.app_id,
            "created": time.time(),
            "appdef": _app_to_dict(app),
            "fail_together": option(self._info, "fail_together"),
            "roles": roles,
        }

    def _add_to_index(self) -> None:
        try:
            index.add(self._request.app_id, self._folder.path)
        except OSError as e:
            if self._folder.path.startswith(layout.base_folder() + os.sep):
                raise
            import logging

            logging.getLogger(__name__).warning(
                "other processes cannot find app %s, because the index cannot be written: %s",
                self._request.app_id,
                e,
            )

    def _start_supervisor(self) -> None:
        self._folder.close()
        log = os.path.join(self._folder.path, layout.PRIVATE, "supervisor.log")
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # If this process runs in a local job, the new app must not end with that job.
        environ = {k: v for k, v in os.environ.items() if k != process_table.ENV_REPLICA}
        try:
            process = subprocess.Popen(
                python_command("run", self._folder.path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=fd,
                env=environ,
                start_new_session=True,
            )
        finally:
            os.close(fd)
        try:
            _read_report(process)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        # If the supervisor ends before this process, this process must reap it.
        threading.Thread(target=process.wait, name="torchx-detached", daemon=True).start()

    def _remove(self) -> None:
        import shutil

        self._folder.close()
        shutil.rmtree(self._folder.path, ignore_errors=True)
        index.remove(self._request.app_id)


def launch(
    reactor: Reactor,
    folder: AppFolder,
    request: PopenRequest,
    role_policies: list[Policy],
    popen: Popen,
    local_app: _LocalAppDef,
    *,
    fail_together: bool,
    adopts: bool = False,
) -> tuple[Supervision, dict[ReplicaIndex, Any]]:
    """Start an app's processes, and return their supervision and the processes by replica.

    Args:
        reactor: Runs the supervision.
        folder: The app's folder.
        request: The app's request.
        role_policies: The retry policy of each role.
        popen: Starts a replica.
        local_app: Receives the started replicas.
        fail_together: As for :class:`Supervision`.
        adopts: As for :class:`Supervision`.

    Raises:
        RequestError: None of the programs can be run.
        BackendError: The machine cannot run the app.
        OSError: The app's folder cannot be written.
    """
    run = AppRun(request.app_id, {r: len(params) for r, params in request.role_params.items()})
    spawn = spawner(request, run.token, popen, local_app)
    supervision = Supervision(
        reactor,
        folder,
        run,
        request,
        role_policies,
        spawn,
        fail_together=fail_together,
        adopts=adopts,
    )
    now = time.time()
    me = processes.identify(os.getpid())
    supervision.record(["supervisor", *me, process_table.boot_id(), os.uname().nodename, now])
    # The guard starts before the first replica, so that no replica is ever without a guard.
    guard = Guard(folder.path)
    try:
        supervision.record(["guard", *guard.process, now])
        supervision.flush()
        running = start_all(supervision, spawn)
    except BaseException:
        guard.dismiss()
        guard.wait()
        raise
    supervision.guard = guard
    return supervision, running


def policies(info: AppDryRunInfo[PopenRequest]) -> list[Policy]:
    """Return the retry policy of each role of the request."""
    roles = {role.name: role for role in info.app.roles} if info.app else {}
    return [
        Policy(roles[name].max_retries, roles[name].retry_policy) if name in roles else Policy()
        for name in info.request.role_params
    ]


def option(info: AppDryRunInfo[Any], name: str) -> bool:
    """Return a boolean option; False if a client made a dry run whose ``cfg`` is not a mapping."""
    return isinstance(info.cfg, Mapping) and bool(info.cfg.get(name))


def _app_to_dict(app: AppDef | None) -> dict[str, Any] | None:
    if app is None:
        return None
    try:
        return serialize.to_dict(app)
    except SerializationError:
        return None  # other processes see the roles of the request instead


def _read_report(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None:
        raise AssertionError("unreachable: the supervisor was started with a pipe")
    with process.stdout:
        line = process.stdout.readline()
    try:
        report = json.loads(line)
    except ValueError:
        raise BackendError(
            "the supervisor process of the app has failed before it started the app"
        ) from None
    if report:
        kind = RequestError if report["error"] == "RequestError" else BackendError
        raise kind(report["message"])
