"""Starts the driver of a sweep in a process of its own, and runs the driver there.

The driver holds a lock, so that a sweep has only one driver. The process that starts the driver
takes the lock, and the driver inherits it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchx_kit.home import TORCHX_HOME
from torchx_kit.scripts.python_program import python_program
from torchx_specs.errors import BackendError
from torchx_sweep.store import Store, has_unfinished

_PROGRAM = python_program(__name__)
# With Python's default thresholds, the search for reference cycles takes a tenth of the driver's
# processor time. With these thresholds, the driver needs 3 MB more memory.
_GC_THRESHOLDS = (20_000, 10, 10)


def _file_of(sweep_id: str, suffix: str) -> Path:
    """Return the path of the file that the driver locks (``lock``), or of its log (``log``)."""
    return TORCHX_HOME("sweeps") / f"{sweep_id}.{suffix}"


@contextmanager
def locked(sweep_id: str, wait: bool = False, inherited: int | None = None) -> Iterator[int | None]:
    """Hold the lock of a sweep and yield its descriptor; yield None if another process holds it.

    Args:
        sweep_id: The sweep.
        wait: Whether to wait until the other process releases the lock.
        inherited: The descriptor of the lock, if the process that started this one has taken it.
    """
    path = _file_of(sweep_id, "lock")
    with open(path if inherited is None else inherited, "ab", opener=_private) as file:
        try:
            # An inherited descriptor has the lock already.
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield None
            return
        yield file.fileno()


def ensure_driver(store: Store, sweep_id: str) -> None:
    """Start a driver if the sweep has unfinished elements and no driver.

    The caller must commit its changes to the sweep before the call.

    Raises:
        BackendError: The process cannot be started.
    """
    sweep = store.sweep(sweep_id)
    if sweep is None or not has_unfinished(store.counts(sweep_id)):
        return
    folder = sweep.folder if os.path.isdir(sweep.folder) else None
    with locked(sweep_id) as lock:
        if lock is None:
            return
        try:
            with open(_file_of(sweep_id, "log"), "ab", opener=_private) as log:
                process = subprocess.Popen(
                    [sys.executable or "python3", "-c", _PROGRAM, sweep_id, str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    pass_fds=[lock],
                    start_new_session=True,
                )
        except OSError as e:
            raise BackendError(f"the driver of the sweep cannot be started: {e}") from e
    # If the driver ends before this process, this process must reap it.
    threading.Thread(target=process.wait, name="torchx-sweep-driver", daemon=True).start()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def remove_files(sweep_id: str) -> None:
    """Remove the lock file and the log of a sweep that was deleted."""
    for suffix in ("log", "lock"):
        _file_of(sweep_id, suffix).unlink(missing_ok=True)


def drive(sweep_id: str, lock: int | None = None) -> None:
    """Drive a sweep until all its elements have ended, unless another process drives it.

    Args:
        sweep_id: The sweep.
        lock: The descriptor of the sweep's lock, if this process has inherited it.
    """
    from torchx_runner.api import Runner
    from torchx_sweep.drivers.driver import Driver

    with Store() as store:
        with locked(sweep_id, inherited=lock) as held:
            sweep = store.sweep(sweep_id)
            if held is None or sweep is None:
                return
            with Runner(sweep.session) as runner:
                Driver(store, sweep, runner, _replace_pid(sweep_id)).run()
        # A client may have queued elements while this process still held the lock. That client has
        # started no driver.
        if not store.is_deleted():
            ensure_driver(store, sweep_id)


def _replace_pid(sweep_id: str) -> int:
    """Write the id of this process to the lock file; return that of the last driver, or 0."""
    path = _file_of(sweep_id, "lock")
    previous = path.read_text().strip()
    path.write_text(f"{os.getpid()}\n")
    return int(previous) if previous.isdigit() else 0


def main(argv: list[str]) -> int:
    """Drive a sweep, and return the exit code.

    Args:
        argv: The sweep's id, and the descriptor of its lock.
    """
    import gc
    import logging

    gc.set_threshold(*_GC_THRESHOLDS)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sweep_id, lock = argv[0], int(argv[1])
    os.set_inheritable(lock, False)
    drive(sweep_id, lock)
    return 0
