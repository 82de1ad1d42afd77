"""Starts the apps of a batch, supervised by this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import Any

from torchx_kit.secrets import without_secrets
from torchx_sched_local.batches import batch_index
from torchx_sched_local.batches.batch_app_folder import BatchAppFolder
from torchx_sched_local.batches.batch_files import BatchFiles
from torchx_sched_local.batches.request_template import RequestTemplate
from torchx_sched_local.build_request import process_path
from torchx_sched_local.errors import folder_error
from torchx_sched_local.request import PopenRequest, ReplicaParam
from torchx_sched_local.store import records
from torchx_sched_local.store.app_run import AppRun, Event, describe_starter
from torchx_sched_local.store.layout import COMBINED_LOG, STDERR_LOG, STDOUT_LOG
from torchx_sched_local.supervise.processes import descriptors
from torchx_sched_local.supervise.processes.process_table import ENV_REPLICA, with_token
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, identify_self
from torchx_sched_local.supervise.processes.spawn import SpawnedProcess, spawn
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.start_replicas import ENV_RESTART_COUNT, start_guarded
from torchx_sched_local.supervise.supervision import Policy, ReplicaIndex, Spawn, Supervision
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDef

_LOGS = (STDOUT_LOG, STDERR_LOG, COMBINED_LOG)


class Batch:
    """Starts apps that differ only in their names, arguments and variables.

    All apps have one replica and no retries, and end with this process.

    Args:
        batch_id: The id of the batch: the ids of its apps are ``<batch_id>-0``, and so on.
        folder: Path of the batch's folder, which must not exist.
        session: Name of the session.
        session_folder: Name of the session's folder, as for :meth:`BatchFiles.create`.
        template: Computes the requests of the apps.
        app: One of the apps, as its dry run completed it. It is stored once for all apps.
        fail_together: The value of the option ``fail_together``.

    Raises:
        RequestError: The folder cannot be written, for example because of missing permissions.
        BackendError: The folder cannot be written for another reason, such as a full disk.
    """

    def __init__(
        self,
        batch_id: str,
        folder: str,
        session: str,
        session_folder: str,
        template: RequestTemplate,
        app: AppDef,
        *,
        fail_together: bool,
    ) -> None:
        self._id = batch_id
        self._template = template
        self._files = BatchFiles(folder)
        self._starter = describe_starter()
        self._policies = [Policy(0, app.roles[0].retry_policy)]
        self._count = 0
        self._guard: ProcessId | None = None
        self._events: list[Event] = []
        self._records = b""
        self._programs: dict[tuple[str, str], str | None] = {}
        self._fail_together = fail_together
        # Copy the environment once for all apps: a copy takes longer than starting a process.
        self._environ = without_secrets(os.environ)
        self._environ.setdefault("PYTHONUNBUFFERED", "x")
        self._cwd = os.getcwd()
        header = {
            "batch_id": batch_id,
            "session": session,
            "starter": self._starter,
            "appdef": serialize.to_dict(app),
            "fail_together": fail_together,
            "template": template.data,
        }
        try:
            self._files.create(session_folder, header)
            batch_index.add(batch_id, folder)
        except OSError as e:
            raise folder_error(folder, e) from e

    def start(self, app: AppDef, reactor: Reactor) -> Supervision | None:
        """Start an app.

        Args:
            app: The app, which differs from the batch's other apps only in its name, arguments and
                variables.
            reactor: Runs the supervision. The caller must have called its method ``hold`` for this
                app; the end of the app calls ``release``.

        Returns:
            The supervision, or None if this app cannot be part of the batch.

        Raises:
            RequestError: The program cannot be run, or the folder cannot be written.
            BackendError: The machine cannot run the app.
        """
        role = app.roles[0]
        if not self._template.matches(role.args, role.env):
            return None
        number, self._count = self._count, self._count + 1
        app_id = f"{self._id}-{number}"
        path = f"{self._files.path}/{app_id}"
        folder = BatchAppFolder(path, self._files)
        created = time.time()
        try:
            folder.create("")
        except OSError as e:
            raise folder_error(path, e) from e
        try:
            differences = {
                "name": app.name,
                "created": created,
                "args": role.args,
                "env": self._template.differences(role.env),
            }
            request = self._template.request(app_id, path, role.args, role.env)
            supervision, running = self._launch(reactor, folder, request, differences)
        except OSError as e:
            _delete(folder)
            raise folder_error(path, e) from e
        except BaseException:
            _delete(folder)
            raise
        supervision.run.created = created
        reactor.call_soon(lambda: supervision.begin(running))
        return supervision

    def close(self) -> None:
        """Close the files after the last :meth:`start`, and delete the batch if it has no apps."""
        batch_index.delete_if_unused(self._files, is_own=True)
        self._files.close()

    def _launch(
        self,
        reactor: Reactor,
        folder: BatchAppFolder,
        request: PopenRequest,
        differences: dict[str, Any],
    ) -> tuple[Supervision, dict[ReplicaIndex, Any]]:
        run = AppRun(request.app_id, {self._template.role: 1})
        run.started_by(self._starter)
        start = self._spawner(request, folder, run.token(0, 0))
        supervision = Supervision(
            reactor,
            folder,
            run,
            request,
            self._policies,
            start,
            fail_together=self._fail_together,
        )
        return supervision, start_guarded(
            reactor,
            supervision,
            start,
            lambda guard: folder.describe(differences, self._first_events(run, guard)),
        )

    def _first_events(self, run: AppRun, guard: ProcessId) -> bytes:
        """Apply the events ``supervisor`` and ``guard`` to an app, and return their records.

        All apps get the same events until another process becomes the guard.
        """
        if self._guard != guard:
            now = time.time()
            self._guard = guard
            self._events = [
                ["supervisor", *identify_self(), run.boot, run.node, now],
                ["guard", *guard, now],
            ]
            self._records = b"".join(map(records.encode, self._events))
        for event in self._events:
            run.apply(event)
        return self._records

    def _spawner(self, request: PopenRequest, folder: BatchAppFolder, token: str) -> Spawn:
        (param,) = request.role_params[self._template.role]

        def start(index: ReplicaIndex, attempt: int) -> Any:
            env = {
                **self._environ,
                **param.env,
                "PATH": process_path(param.env.get("PATH"), param.cwd, self._environ.get("PATH")),
                ENV_RESTART_COUNT: str(attempt),
                ENV_REPLICA: with_token(self._environ, token),
            }
            return self._start(folder, param, env)

        return start

    def _start(
        self, folder: BatchAppFolder, param: ReplicaParam, env: dict[str, str]
    ) -> SpawnedProcess | subprocess.Popen[bytes]:
        """Start an app's process as the leader of a new session; log its output in the folder."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
        process: SpawnedProcess | subprocess.Popen[bytes] | None = None
        fds: list[int] = []
        try:
            fds.extend(folder.files.open(name, flags, 0o644) for name in _LOGS)
            program = self._find_program(param.args[0], env["PATH"])
            if program is not None and param.cwd in (None, self._cwd):
                process = spawn(program, param.args, env, fds[0], fds[1])
            if process is None:
                process = subprocess.Popen(
                    param.args,
                    env=env,
                    stdout=fds[0],
                    stderr=fds[1],
                    cwd=param.cwd,
                    start_new_session=True,
                )
        finally:
            for fd in fds:
                os.close(fd)
        descriptors.restore_limit(process)
        return process

    def _find_program(self, name: str, search_path: str) -> str | None:
        """Return the path of a program, or None if it was not found."""
        key = (name, search_path)
        if key not in self._programs:
            self._programs[key] = shutil.which(name, path=search_path)
        return self._programs[key]


def _delete(folder: BatchAppFolder) -> None:
    """Delete the folder of an app that was not started."""
    try:
        folder.delete()
    except OSError:
        pass  # the user can delete the app later, by its id
