"""Starts the processes of replicas."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from io import FileIO
from typing import TYPE_CHECKING, Any

from torchx_kit.logs.streams import Tee
from torchx_sched_local.errors import REQUEST_ERRORS, folder_error
from torchx_sched_local.request import PopenRequest, ReplicaParam
from torchx_sched_local.supervise.process_table import ENV_REPLICA, with_token
from torchx_sched_local.supervise.replicas import PopenProtocol, _LocalAppDef, _LocalReplica
from torchx_sched_local.supervise.terminate import terminate_all
from torchx_specs.errors import BackendError, RequestError

if TYPE_CHECKING:
    from torchx_sched_local.supervise.supervision import ReplicaIndex, Spawn, Supervision

#: The variable with the number of restarts, 0 for the first attempt.
ENV_RESTART_COUNT = "TORCHX_RESTART_COUNT"

# Errors of one program or its arguments. Other errors would affect every program.
_PROGRAM_ERRORS = REQUEST_ERRORS | {errno.E2BIG, errno.EINVAL, errno.ENOEXEC, errno.ETXTBSY}


class SupervisedParam(ReplicaParam):
    """How to start a replica whose logs a supervision merges.

    Attributes:
        attempt: The number of restarts, 0 for the first attempt.
        environ: The inherited environment; None means the current one of this process.
    """

    attempt: int = 0
    environ: dict[str, str] | None = None


def spawner(
    request: PopenRequest,
    token: Callable[[int, int], str],
    popen: Callable[[str, int, ReplicaParam], _LocalReplica],
    local_app: _LocalAppDef,
) -> Spawn:
    """Return the function that starts a replica.

    Args:
        request: The app's request.
        token: Returns the token that marks the processes of a replica.
        popen: Starts a process.
        local_app: Receives the started replicas.
    """
    roles = list(request.role_params.items())
    # Copied once for all replicas: copying it takes longer than starting a process.
    environ = dict(os.environ)

    def spawn(index: ReplicaIndex, attempt: int) -> PopenProtocol:
        role, params = roles[index[0]]
        param = params[index[1]]
        marks = {
            ENV_RESTART_COUNT: str(attempt),
            ENV_REPLICA: with_token(environ, token(*index)),
        }
        supervised = SupervisedParam(
            param.args,
            {**param.env, **marks},
            param.stdout,
            param.stderr,
            param.combined,
            param.cwd,
        )
        supervised.attempt = attempt
        supervised.environ = environ
        if not attempt:
            _make_folder(request.role_log_dirs[role][index[1]])
        replica = popen(role, index[1], supervised)
        replica.close_files()  # the process has its own descriptors
        local_app.add_replica(role, replica)
        return replica.proc

    return spawn


def start_all(supervision: Supervision, spawn: Spawn) -> dict[ReplicaIndex, Any]:
    """Start all replicas of an app, and return the processes that run.

    A replica whose program cannot be run is recorded as failed if other replicas run.

    Args:
        supervision: Records the starts.
        spawn: Starts a replica.

    Raises:
        RequestError: None of the programs can be run.
        BackendError: The machine cannot run so many processes; all were killed.
    """
    running: dict[ReplicaIndex, Any] = {}
    first_reason = ""
    try:
        for i, (role, replicas) in enumerate(supervision.run.roles.items()):
            for k in range(len(replicas)):
                index = (i, k)
                try:
                    process = spawn(index, 0)
                except OSError as e:
                    reason = supervision.describe_start_error(index, e)
                    if e.errno not in _PROGRAM_ERRORS:
                        raise BackendError(f"{role}/{k}: {reason}") from e
                    first_reason = first_reason or f"{role}/{k}: {reason}"
                    supervision.record_start_error(index, e)
                else:
                    running[index] = process
                    supervision.record_start(index, process)
        if not running:
            raise RequestError(
                first_reason or "the request has no replicas; set Role.num_replicas to 1 or more"
            )
        try:
            supervision.flush()
        except OSError as e:
            raise folder_error(supervision.folder.path, e) from e
    except BaseException:
        _kill_started(supervision, running)
        raise
    return running


def output_files(
    param: ReplicaParam, make: Callable[[str | None], FileIO | None]
) -> tuple[FileIO | None, FileIO | None, Tee | None]:
    """Open the files for a replica's output.

    Args:
        param: How to start the replica.
        make: Creates the file with the given path; returns None for None.

    Returns:
        The files for standard output and standard error, and the :class:`Tee` that merges them; the
        third value is None if a supervision merges them, or if one of the three files is missing.

    Raises:
        OSError: A file cannot be created.
    """
    if isinstance(param, SupervisedParam) and param.attempt:
        # A restart appends to the files of the previous attempt.
        out, err = (path and open_log(path) for path in (param.stdout, param.stderr))
        return out or None, err or None, None
    stdout, stderr, combined = (make(f) for f in (param.stdout, param.stderr, param.combined))
    if isinstance(param, SupervisedParam):
        if combined is not None:
            combined.close()  # the supervision writes it
        return stdout, stderr, None
    if combined is None or not (param.stdout and param.stderr):
        return stdout, stderr, None
    return stdout, stderr, Tee(combined, param.stdout, param.stderr)


def open_log(path: str, flags: int = 0) -> FileIO:
    """Open a log file for a process, and create it if it is missing.

    The process always writes to the end of the file, even if another process writes to the file or
    truncates it.

    Args:
        path: The log file.
        flags: More flags of :func:`os.open`.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
    return _NamedFile(fd, path)


class _NamedFile(FileIO):
    """A file that was opened as a descriptor, with its path as its name."""

    def __init__(self, fd: int, path: str) -> None:
        super().__init__(fd, "wb")
        self.name = path


def _make_folder(path: str) -> None:
    try:
        try:
            os.mkdir(path)
        except FileNotFoundError:
            os.makedirs(path)
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
