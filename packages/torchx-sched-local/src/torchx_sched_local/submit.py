"""Submitting an app: its folder, its processes, and who supervises them."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_local.errors import folder_error
from torchx_sched_local.request import PopenRequest, ReplicaParam, as_data
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise import process_table, processes
from torchx_sched_local.supervise.guard import Guard, python_command
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.replicas import _LocalAppDef, _LocalReplica
from torchx_sched_local.supervise.start_replicas import spawner, start_all
from torchx_sched_local.supervise.supervision import Place, Policy, Supervision
from torchx_specs.errors import BackendError, RequestError, SerializationError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDef
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    #: Starts a replica: called with its role, its index and how.
    Popen = Callable[[str, int, ReplicaParam], _LocalReplica]


class Submission:
    """An app on its way to its processes.

    Args:
        info: what is submitted
        session: who submits
    """

    def __init__(self, info: AppDryRunInfo[PopenRequest], session: str) -> None:
        self._info = info
        self._request = info.request
        self._session = session
        self._folder = AppFolder(info.request.log_dir)

    def start_attached(self, reactor: Reactor, popen: Popen) -> _LocalAppDef:
        """Starts the processes, supervised by this process.

        Args:
            reactor: supervises; it is held for the app already, and released with its end
            popen: starts a replica

        Raises:
            RequestError: no program can be run, or the folder cannot be written
            BackendError: the machine cannot run it
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
        """Starts a process that starts and supervises the app's.

        Raises:
            RequestError: no program can be run, or the folder cannot be written
            BackendError: the machine cannot run it
        """
        self._in_new_folder(self._start_supervisor)

    def _in_new_folder(self, start: Callable[[], None]) -> None:
        """Makes the app's folder and starts it; nothing is left behind if that fails."""
        try:
            self._folder.create()
        except FileExistsError as e:
            raise folder_error(self._folder.path, e) from e
        except OSError as e:
            self._remove()
            raise folder_error(self._folder.path, e) from e
        try:
            self._folder.write(self._description(), as_data(self._request))
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
            "appdef": _stored_form(app),
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

            # the logs are where they were wanted: that is what the user has asked for
            logging.getLogger(__name__).warning(
                "other processes will not find app %s: %s", self._request.app_id, e
            )

    def _start_supervisor(self) -> None:
        self._folder.close()
        log = os.path.join(self._folder.path, layout.PRIVATE, "supervisor.log")
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # the mark of the job that this process belongs to, if any, would end the app with that
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
            _read_answer(process)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        # it outlives this process; or else somebody has to wait for it, lest a zombie stays
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
) -> tuple[Supervision, dict[Place, Any]]:
    """Starts an app's processes; returns what is to supervise them, and them.

    Args:
        reactor: will call the supervision
        folder: the app's folder, with its records
        request: the processes
        role_policies: what is done when a replica fails, role by role
        popen: starts a replica
        local_app: replicas are added to it
        fail_together: see :class:`Supervision`
        adopts: see :class:`Supervision`
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
    # before the first process, so that none is ever without
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
    """Returns what is done when a replica fails, for each role of the request."""
    roles = {role.name: role for role in info.app.roles} if info.app else {}
    return [
        Policy(roles[name].max_retries, roles[name].retry_policy) if name in roles else Policy()
        for name in info.request.role_params
    ]


def option(info: AppDryRunInfo[Any], name: str) -> bool:
    """Returns an option; older code puts other things than options there."""
    return isinstance(info.cfg, Mapping) and bool(info.cfg.get(name))


def _stored_form(app: AppDef | None) -> dict[str, Any] | None:
    if app is None:
        return None
    try:
        return serialize.to_dict(app)
    except SerializationError:
        return None  # it runs all the same; others see its roles as the request has them


def _read_answer(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None:
        raise AssertionError("unreachable: it has a pipe")
    with process.stdout:
        line = process.stdout.readline()
    try:
        answer = json.loads(line)
    except ValueError:
        raise BackendError("the supervisor of the app has failed to start") from None
    if answer:
        kind = RequestError if answer["error"] == "RequestError" else BackendError
        raise kind(answer["message"])
