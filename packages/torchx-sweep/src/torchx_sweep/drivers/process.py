"""Starts the driver of a sweep in a process of its own, and runs the driver there.

The driver holds a lock, so that a sweep has only one driver: :func:`main` submits nothing if
another process holds the lock.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from torchx_kit.home import TORCHX_HOME
from torchx_kit.scripts.python_program import python_program
from torchx_specs.errors import BackendError
from torchx_sweep.store import Store, has_unfinished

if TYPE_CHECKING:
    from torchx_runner import Runner

_PROGRAM = python_program(__name__)
# How many times a new driver tries to get the lock, and the pause between two attempts (seconds).
_LOCK_ATTEMPTS = 5
_LOCK_PAUSE = 0.1
# With Python's default thresholds, the search for reference cycles takes a tenth of the driver's
# processor time. With these thresholds, the driver needs 3 MB more memory.
_GC_THRESHOLDS = (20_000, 10, 10)

# The drivers that this process has started, by the ids of their sweeps, each with the pid in the
# lock file before its start.
_started: dict[str, tuple[subprocess.Popen[bytes], int]] = {}


def lock_path(sweep_id: str) -> str:
    """Return the path of the file that the driver of a sweep locks."""
    return str(TORCHX_HOME("sweeps") / f"{sweep_id}.lock")


def log_path(sweep_id: str) -> str:
    """Return the path of the driver's log."""
    return str(TORCHX_HOME("sweeps") / f"{sweep_id}.log")


@contextmanager
def locked(sweep_id: str, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a sweep and yield True, or yield False if another process holds the lock.

    Args:
        sweep_id: The sweep.
        wait: Whether to wait until the other process releases the lock.
    """
    fd = os.open(lock_path(sweep_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)


def has_driver(sweep_id: str) -> bool:
    """Return True if a driver of the sweep is running."""
    with locked(sweep_id) as is_free:
        return not is_free


def ensure_driver(store: Store, sweep_id: str) -> None:
    """Start a driver if the sweep has unfinished elements and no driver.

    The caller must commit its changes to the sweep before the call.

    Raises:
        BackendError: The process cannot be started.
    """
    sweep = store.sweep(sweep_id)
    if sweep is None or not has_unfinished(store.counts(sweep_id)):
        return
    if _is_starting(sweep_id) or has_driver(sweep_id):
        return
    folder = sweep.folder if os.path.isdir(sweep.folder) else None
    previous = _read_pid(sweep_id)
    try:
        with open(log_path(sweep_id), "ab", opener=_private) as log:
            process = subprocess.Popen(
                [sys.executable or "python3", "-c", _PROGRAM, sweep_id],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
    except OSError as e:
        raise BackendError(f"the driver of the sweep cannot be started: {e}") from e
    _started[sweep_id] = process, previous
    # If the driver ends before this process, this process must reap it.
    threading.Thread(target=process.wait, name="torchx-sweep-driver", daemon=True).start()


def _is_starting(sweep_id: str) -> bool:
    """Return True if this process has started a driver that has not tried to get the lock yet.

    The lock is still free then, but a waiting client must not start another driver.
    """
    if sweep_id not in _started:
        return False
    process, previous = _started[sweep_id]
    if process.poll() is None and _read_pid(sweep_id) == previous:
        return True
    del _started[sweep_id]
    return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def remove_files(sweep_id: str) -> None:
    """Remove the lock file and the log of a sweep that was deleted."""
    for path in (log_path(sweep_id), lock_path(sweep_id)):
        with suppress(FileNotFoundError):
            os.unlink(path)


def drive(sweep_id: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Drive a sweep until all its elements have ended, unless another process drives it.

    Args:
        sweep_id: The sweep.
        sleep: Waits for a number of seconds, before another attempt to get the lock.
    """
    from torchx_runner.api import Runner

    with Store() as store:
        sweep = store.sweep(sweep_id)
        if sweep is not None:
            with Runner(sweep.session) as runner:
                _drive(store, sweep_id, runner, sleep)


def _drive(store: Store, sweep_id: str, runner: Runner, sleep: Callable[[float], None]) -> None:
    from torchx_sweep.drivers.driver import Driver

    attempts = _LOCK_ATTEMPTS
    while attempts and not store.is_deleted():
        with locked(sweep_id) as is_free:
            if is_free:
                sweep = store.sweep(sweep_id)
                if sweep is None:
                    return
                previous = _replace_pid(sweep_id)
                Driver(store, sweep, runner, previous).run()
        if not is_free:
            # A client holds the lock for a moment while it tests whether there is a driver.
            attempts -= 1
            sleep(_LOCK_PAUSE)
        # A client may have queued elements while this process still held the lock. That client has
        # started no driver.
        elif not has_unfinished(store.counts(sweep_id)):
            return


def _read_pid(sweep_id: str) -> int:
    """Return the process id of the last driver, or 0 if there was none."""
    try:
        with open(lock_path(sweep_id), encoding="ascii") as file:
            text = file.read().strip()
    except FileNotFoundError:
        return 0
    return int(text) if text.isdigit() else 0


def _replace_pid(sweep_id: str) -> int:
    """Write the id of this process to the lock file, and return the previous id, or 0."""
    previous = _read_pid(sweep_id)
    with open(lock_path(sweep_id), "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    return previous


def main(argv: list[str]) -> int:
    """Run the driver of the sweep whose id is the first argument, and return the exit code."""
    import gc
    import logging

    gc.set_threshold(*_GC_THRESHOLDS)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    drive(argv[0])
    return 0
