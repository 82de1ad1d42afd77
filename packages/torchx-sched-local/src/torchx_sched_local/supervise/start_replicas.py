"""Starts the supervision of an app and the processes of its replicas."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.attempts import committed_step
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.logs.streams import Tee
from torchx_kit.secrets import resolve_secrets, with_values, without_secrets
from torchx_sched_local.cuda import GpuClaims
from torchx_sched_local.errors import REQUEST_ERRORS, folder_error, is_temporary
from torchx_sched_local.request import PopenRequest, ReplicaParam
from torchx_sched_local.store.app_files import AppFiles
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes.process_table import ENV_REPLICA, with_token
from torchx_sched_local.supervise.processes.replica_processes import identify_self
from torchx_sched_local.supervise.processes.terminate import GRACE_SECONDS, terminate_all
from torchx_sched_local.supervise.replicas import PopenProtocol, _LocalAppDef, _LocalReplica
from torchx_sched_local.supervise.supervision import Policy, ReplicaIndex, Spawn, Supervision
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.settings import (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_RESTART_REASON,
    ENV_TORCHX_STOP_GRACE,
)

if TYPE_CHECKING:
    from torchx_sched_local.supervise.reactor import Reactor

    #: Starts a replica: called with the name of its role, its index, and how to start it.
    Popen = Callable[[str, int, ReplicaParam], _LocalReplica]

#: The variable with the index of the replica in its role.
ENV_REPLICA_ID = "TORCHX_REPLICA_ID"
#: The variable with the number of restarts, 0 for the first attempt.
ENV_RESTART_COUNT = "TORCHX_RESTART_COUNT"

# Values of `errno` that concern one program or its arguments. Other errors affect every program.
_PROGRAM_ERRORS = REQUEST_ERRORS | {errno.E2BIG, errno.EINVAL, errno.ENOEXEC, errno.ETXTBSY}


@dataclass
class SupervisedParam(ReplicaParam):
    """How to start a replica whose logs a supervision merges.

    Attributes:
        attempt: The number of restarts, 0 for the first attempt.
        environ: The inherited environment; None means the current one of this process.
        files: Opens the files of the app.
    """

    attempt: int = 0
    environ: dict[str, str] | None = None
    files: AppFiles | None = None


def spawner(
    request: PopenRequest,
    files: AppFiles,
    run: AppRun,
    popen: Callable[[str, int, ReplicaParam], _LocalReplica],
    local_app: _LocalAppDef,
    gpus: GpuClaims,
) -> Spawn:
    """Read the secrets of an app, and return a function that starts a replica.

    The secrets are read once, for all replicas and restarts. The values are only in the memory of
    this process and in the environments of the replicas.

    Args:
        request: The app's request.
        files: Opens the files of the app.
        run: The state of the app.
        popen: Starts a process.
        local_app: Receives the started replicas.
        gpus: The GPUs of the replicas.

    Raises:
        RequestError: A secret is missing, or is not protected from other users.
    """
    roles = list(request.role_params.items())
    # Copy the environment once for all replicas: a copy takes longer than starting a process.
    environ = without_secrets(os.environ)
    envs = {id(p.env): p.env for params in request.role_params.values() for p in params}
    secrets = resolve_secrets(envs.values())

    def spawn(index: ReplicaIndex, attempt: int) -> PopenProtocol:
        role, params = roles[index[0]]
        param = params[index[1]]
        marks = {
            **gpus.environment((role, index[1])),
            ENV_REPLICA_ID: str(index[1] if request.elements is None else 0),
            ENV_RESTART_COUNT: str(attempt),
            ENV_REPLICA: with_token(environ, run.token(*index)),
            **(_attempt_variables(run) if request.attempts else {}),
        }
        supervised = SupervisedParam(
            param.args,
            {**with_values(param.env, secrets), **marks},
            param.stdout,
            param.stderr,
            param.combined,
            param.cwd,
            attempt,
            environ,
            files,
        )
        if not attempt:
            _make_folder(files, request.role_log_dirs[role][index[1]])
        try:
            replica = popen(role, index[1], supervised)
        except Exception as e:
            if not attempt and is_temporary(e):
                files.remove_folder(request.role_log_dirs[role][index[1]])
            raise
        replica.close_files()  # the process has its own descriptors
        local_app.add_replica(role, replica)
        return replica.proc

    return spawn


def _attempt_variables(run: AppRun) -> dict[str, str]:
    """Return what each replica knows about the attempt of an app with the option ``requeue``."""
    variables = {
        ENV_TORCHX_ATTEMPT: str(len(run.ended_attempts)),
        ENV_TORCHX_STOP_GRACE: f"SIGTERM={GRACE_SECONDS:g}",
    }
    if run.ended_attempts:
        variables[ENV_TORCHX_RESTART_REASON] = run.ended_attempts[-1].reason
    return variables


def launch(
    reactor: Reactor,
    folder: AppFolder,
    request: PopenRequest,
    role_policies: list[Policy],
    popen: Popen,
    local_app: _LocalAppDef,
    *,
    starter: Mapping[str, Any],
    fail_together: bool,
    parent: Guard | None = None,
) -> tuple[Supervision, dict[ReplicaIndex, Any]]:
    """Start an app's processes, and return their supervision and the processes by replica.

    If the start fails, the guard is dismissed. If the start is interrupted, the guard ends the app.

    Args:
        reactor: Runs the supervision.
        folder: The app's folder.
        request: The app's request.
        role_policies: The retry policy of each role.
        popen: Starts a replica.
        local_app: Receives the started replicas.
        starter: When and where the app was submitted, as :func:`describe_starter` returns it.
        fail_together: As for :class:`Supervision`.
        parent: The guard, if it is the parent of this process, all of whose descendants then belong
            to the app; None starts a guard.

    Raises:
        RequestError: None of the programs can be run, a secret cannot be read, or the app's folder
            cannot be written.
        BackendError: The machine cannot run the app.
        OSError: The guard cannot be started, or the first events cannot be written.
    """
    run = AppRun(request.app_id, {r: len(params) for r, params in request.role_params.items()})
    run.started_by(starter)
    if request.attempts:  # it may run again after the machine restarted
        for event in folder.read_events(0)[0]:
            run.apply(event)
    gpus = GpuClaims(request)
    spawn = spawner(request, folder.files, run, popen, local_app, gpus)
    supervision = Supervision(
        reactor,
        folder,
        run,
        request,
        role_policies,
        spawn,
        gpus,
        fail_together=fail_together,
        adopts=parent is not None,
    )
    now = time.time()
    supervision.record(["supervisor", *identify_self(), run.boot, run.node, now])
    if request.attempts and not run.ended_attempts:
        supervision.record(["resume", committed_step(request.resume_dir), now])
    # The guard starts before the first replica, so that no replica is ever without a guard.
    guard = parent or Guard(folder, run.app_id, run.begun)
    try:
        supervision.flush()
        running = start_all(supervision, spawn)
    except Exception:
        guard.dismiss()
        guard.wait()
        raise
    except BaseException:
        # Popen may have been interrupted just after it started a process. The guard finds that
        # process too, because the guard looks for processes a little later.
        guard.end_app()
        raise
    supervision.guard = guard
    return supervision, running


def start_all(supervision: Supervision, spawn: Spawn) -> dict[ReplicaIndex, Any]:
    """Start the replicas of an app that may start now, and return the processes that run.

    A replica whose program cannot be run is recorded as failed if other replicas run, or if the app
    is an array. If this function raises an error, it has killed all started processes.

    Args:
        supervision: Records the starts.
        spawn: Starts a replica.

    Raises:
        RequestError: None of the programs can be run, or the app's folder cannot be written.
        BackendError: The machine cannot run so many processes, or has another problem.
    """
    run = supervision.run
    running: dict[ReplicaIndex, Any] = {}
    first_reason = ""
    try:
        while (index := supervision.next_waiting(len(running))) is not None:
            try:
                process = spawn(index, supervision.begin_attempt(index))
            except OSError as e:
                replica = run.replica(*index)
                reason = supervision.describe_start_error(index, e)
                reason = f"{replica.role}/{replica.id}: {reason}"
                if e.errno not in _PROGRAM_ERRORS:
                    raise BackendError(reason) from e
                first_reason = first_reason or reason
                supervision.record_start_error(index, e)
            else:
                running[index] = process
                supervision.record_start(index, process)
                _flush(supervision)
        if not running and supervision.request.elements is None and not run.waiting:
            raise RequestError(
                first_reason or "the request has no replicas; set Role.num_replicas to 1 or more"
            )
        _flush(supervision)
    except BaseException:
        _kill_started(supervision, running)
        raise
    return running


def _flush(supervision: Supervision) -> None:
    """Write the recorded events to the journal; called after each start, before the next one."""
    try:
        supervision.flush()
    except OSError as e:
        raise folder_error(supervision.folder.path, e) from e


def output_files(
    param: ReplicaParam, make: Callable[[str | None], FileIO | None]
) -> tuple[FileIO | None, FileIO | None, Tee | None]:
    """Open the files for a replica's output.

    Args:
        param: How to start the replica.
        make: Creates the file with the given path; returns None for None.

    Returns:
        The files for standard output and standard error, and the :class:`Tee` that merges them; the
        third value is None if a supervision merges them, or if one of the three paths is None.

    Raises:
        OSError: A file cannot be created.
    """
    if isinstance(param, SupervisedParam) and param.attempt:
        # A restart appends to the files of the previous attempt.
        paths = (param.stdout, param.stderr)
        out, err = (open_log(path, 0, param.files) if path else None for path in paths)
        return out, err, None
    stdout, stderr, combined = (make(f) for f in (param.stdout, param.stderr, param.combined))
    if isinstance(param, SupervisedParam):
        if combined is not None:
            combined.close()  # the supervising process writes the combined log
        return stdout, stderr, None
    if combined is None or not (param.stdout and param.stderr):
        return stdout, stderr, None
    return stdout, stderr, Tee(combined, param.stdout, param.stderr)


def open_log(path: str, flags: int = 0, files: AppFiles | None = None) -> FileIO:
    """Open a log file for a process, and create it if it is missing.

    The process always writes to the end of the file, even if another process writes to the file or
    truncates it.

    Args:
        path: The log file.
        flags: More flags of :func:`os.open`.
        files: Opens the files of the app; None opens the path as it is.

    Raises:
        OSError: The file cannot be opened.
    """
    flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND

    def opener(path: str, _: int) -> int:
        return open_regular(path, flags) if files is None else files.open(path, flags, 0o644)

    return FileIO(path, "wb", opener=opener)


def _make_folder(files: AppFiles, path: str) -> None:
    try:
        files.make_folder(path)
    except OSError as e:
        raise folder_error(path, e) from e


def _kill_started(supervision: Supervision, running: dict[ReplicaIndex, Any]) -> None:
    """Kill the started processes and all of their descendants."""
    run = supervision.run
    terminate_all(run.find_processes, grace=0)
    for index, process in running.items():
        known = run.replica(*index).process
        if known is None or not known.start:
            process.kill()
        process.wait()
