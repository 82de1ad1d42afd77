"""What a supervision passes to the scheduler to start a replica, and the files of its output."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO

from torchx_kit.logs.regular_files import open_regular
from torchx_kit.logs.streams import Tee
from torchx_sched_local.request import ReplicaParam
from torchx_sched_local.store.app_files import AppFiles
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise.processes.terminate import GRACE_SECONDS
from torchx_specs.settings import (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_RESTART_REASON,
    ENV_TORCHX_STOP_GRACE,
)

#: The variable with the index of the replica in its role.
ENV_REPLICA_ID = "TORCHX_REPLICA_ID"
#: The variable with the number of restarts, 0 for the first attempt.
ENV_RESTART_COUNT = "TORCHX_RESTART_COUNT"


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


def attempt_variables(run: AppRun) -> dict[str, str]:
    """Return what each replica knows about the attempt of an app with the option ``requeue``."""
    variables = {
        ENV_TORCHX_ATTEMPT: str(len(run.ended_attempts)),
        ENV_TORCHX_STOP_GRACE: f"SIGTERM={GRACE_SECONDS:g}",
    }
    if run.ended_attempts:
        variables[ENV_TORCHX_RESTART_REASON] = run.ended_attempts[-1].reason
    return variables


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
