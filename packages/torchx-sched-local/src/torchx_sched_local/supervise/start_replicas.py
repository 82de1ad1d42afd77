"""Starting processes: one replica, or all of an app or none."""

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
from torchx_sched_local.supervise.terminate import end_all
from torchx_specs.errors import BackendError, RequestError

if TYPE_CHECKING:
    from torchx_sched_local.supervise.supervision import Place, Spawn, Supervision

#: The variable with the number of the attempt, 0 for the first.
ENV_RESTART_COUNT = "TORCHX_RESTART_COUNT"

# What the program or its arguments are to blame for; anything else would hit every program.
_PROGRAM_ERRORS = REQUEST_ERRORS | {errno.E2BIG, errno.EINVAL, errno.ENOEXEC, errno.ETXTBSY}


class SupervisedParam(ReplicaParam):
    """How to start a replica whose logs a supervision merges.

    Attributes:
        attempt: which attempt it is, 0 for the first
        environ: what the process inherits; None for what this process has now
    """

    attempt: int = 0
    environ: dict[str, str] | None = None


def spawner(
    request: PopenRequest,
    token: Callable[[int, int], str],
    popen: Callable[[str, int, ReplicaParam], _LocalReplica],
    local_app: _LocalAppDef,
) -> Spawn:
    """Returns what starts a replica by its place.

    Args:
        request: the processes
        token: returns what marks the processes of a replica
        popen: starts a process
        local_app: the replica is added to it
    """
    roles = list(request.role_params.items())
    # once for all of them: reading it takes longer than starting a process
    environ = dict(os.environ)

    def spawn(place: Place, attempt: int) -> PopenProtocol:
        role, params = roles[place[0]]
        param = params[place[1]]
        marks = {
            ENV_RESTART_COUNT: str(attempt),
            ENV_REPLICA: with_token(environ, token(*place)),
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
            _make_folder(request.role_log_dirs[role][place[1]])
        replica = popen(role, place[1], supervised)
        replica.close_files()  # the process has them now
        local_app.add_replica(role, replica)
        return replica.proc

    return spawn


def start_all(supervision: Supervision, spawn: Spawn) -> dict[Place, Any]:
    """Starts the replicas and returns the processes that run.

    A replica whose program cannot be run is recorded as failed, as long as there are others.

    Raises:
        RequestError: no replica's program can be run
        BackendError: the machine cannot run (that many) processes; none is left running
    """
    running: dict[Place, Any] = {}
    first_reason = ""
    try:
        for i, (role, replicas) in enumerate(supervision.run.roles.items()):
            for k in range(len(replicas)):
                place = (i, k)
                try:
                    process = spawn(place, 0)
                except OSError as e:
                    reason = supervision.why_not_started(place, e)
                    if e.errno not in _PROGRAM_ERRORS:
                        raise BackendError(f"{role}/{k}: {reason}") from e
                    first_reason = first_reason or f"{role}/{k}: {reason}"
                    supervision.not_started(place, e)
                else:
                    running[place] = process
                    supervision.started(place, process)
        if not running:
            raise RequestError(first_reason or "the request has no replicas")
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
    """Opens the files for a replica's output; returns them and what merges them.

    Args:
        param: the replica
        make: makes a file that is not there yet

    Raises:
        OSError: they cannot be made
    """
    if isinstance(param, SupervisedParam) and param.attempt:
        # another attempt goes on in the files of the one before
        out, err = (path and open_log(path) for path in (param.stdout, param.stderr))
        return out or None, err or None, None
    stdout, stderr, combined = (make(f) for f in (param.stdout, param.stderr, param.combined))
    if isinstance(param, SupervisedParam):
        if combined is not None:
            combined.close()  # it is there from the beginning; the supervision fills it
        return stdout, stderr, None
    if combined is None or not (param.stdout and param.stderr):
        return stdout, stderr, None
    return stdout, stderr, Tee(combined, param.stdout, param.stderr)


def open_log(path: str, flags: int = 0) -> FileIO:
    """Opens a log file for a process to write to; made if it is missing.

    What is written goes to its end, whoever else writes or cuts it off.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
    return _NamedFile(fd, path)


class _NamedFile(FileIO):
    """A file that is opened by descriptor, and still knows its name."""

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


def _kill_started(supervision: Supervision, running: dict[Place, Any]) -> None:
    """Kills what was started, and all that this has started."""
    run = supervision.run
    end_all(run.find_processes, grace=0)
    for place, process in running.items():
        known = run.replica(*place).process
        if known is None or not known.start:
            process.kill()
        process.wait()
