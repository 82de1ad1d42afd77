r"""Runs a program and ends it after a timeout or when a file exists.

    python -m torchx_apps.process_monitor --timeout 3600 --exit_on_file s3://bucket/done -- \
        tensorboard --logdir s3://bucket/logs

* The monitor exits with the program's exit code. If signal n ended the program, this is 256 - n
  (241 for SIGTERM).
* If the program was not started, the monitor exits with :data:`TIMEOUT_EXIT_CODE` (the file
  ``--start_on_file`` did not appear in time), 128 + n (signal n arrived before the start), 127 (the
  program does not exist) or 126 (the program cannot be executed).
* To end the program, the monitor sends SIGTERM to the program's process group, and SIGKILL
  after ``--kill_timeout``.
* If the monitor receives SIGTERM, SIGINT or SIGHUP, it sends this signal to the process group,
  and SIGKILL after ``--kill_timeout``.
* No process of the program's process group outlives the monitor, unless SIGKILL ends the monitor.

The monitor reacts to the program's exit and to signals at once. It polls for files every
``--poll_rate`` seconds, and at least ten times a second on a local file system.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from .program import ArgumentParser, ProgramError, not_negative_float, one_line, positive_float, run

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator
    from types import FrameType

PROG = "torchx_apps.process_monitor"
TIMEOUT_EXIT_CODE = 34
COMMAND_NOT_FOUND, COMMAND_NOT_EXECUTABLE = 127, 126  # as in shells

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOCAL_POLL_SECONDS = 0.1
_GROUP_POLL_SECONDS = 0.02
# The shortest timeout of a wait, in seconds. If the timeout is shorter, it is over before the wait
# begins, and Python 3.10 may then wait forever.
_SHORTEST_WAIT = 0.001
# from Linux's <sys/prctl.h>
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37

_EXITED = 0
"""Event: the program exited. All other events are signal numbers."""


def parse_args(argv: list[str]) -> Namespace:
    """Parse the arguments; print one line and exit with code 2 if they are invalid."""
    parser = ArgumentParser(
        prog=PROG, description="Run a program and end it after a timeout or when a file exists."
    )
    parser.add_argument(
        "--timeout",
        type=not_negative_float,
        help="end the program after this many seconds, including the wait for --start_on_file",
    )
    parser.add_argument("--start_on_file", help="start the program when this fsspec URL exists")
    parser.add_argument("--exit_on_file", help="end the program when this fsspec URL exists")
    parser.add_argument(
        "--poll_rate",
        type=positive_float,
        default=5,
        help="seconds between two polls for a file (default: %(default)s)",
    )
    parser.add_argument(
        "--kill_timeout",
        type=not_negative_float,
        default=60,
        help="seconds between SIGTERM and SIGKILL (default: %(default)s)",
    )
    # Parse the program and its arguments as one argument, because argparse then handles "--" in the
    # same way in all Python versions.
    parser.add_argument(
        "command",
        nargs="...",
        metavar="entrypoint args",
        help="the program to run and its arguments, preferably after --",
    )
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("the following arguments are required: entrypoint")
    del args.command
    args.entrypoint, args.args = command[0], command[1:]
    return args


def main(argv: list[str]) -> None:
    """Run the program and exit with its exit code."""
    args = parse_args(argv)
    monitor = Monitor(
        [args.entrypoint, *args.args],
        timeout=args.timeout,
        start_on_file=args.start_on_file,
        exit_on_file=args.exit_on_file,
        poll_rate=args.poll_rate,
        kill_timeout=args.kill_timeout,
    )
    sys.exit(monitor.run())


class Monitor:
    """Runs a program, and starts and ends it on conditions.

    Args:
        command: The program and its arguments.
        timeout: End the program this many seconds after the call of :meth:`run`; None means never.
        start_on_file: URL for fsspec. The program starts when this file exists. Empty means at
            once.
        exit_on_file: URL for fsspec. The program is ended when this file exists. Empty means never.
        poll_rate: Time between two polls for a file, in seconds.
        kill_timeout: Time between SIGTERM and SIGKILL, in seconds.

    Raises:
        ProgramError: One of the URLs is not valid.
    """

    def __init__(
        self,
        command: list[str],
        *,
        timeout: float | None = None,
        start_on_file: str | None = None,
        exit_on_file: str | None = None,
        poll_rate: float = 5,
        kill_timeout: float = 60,
    ) -> None:
        self._command = command
        self._timeout = timeout
        self._start_file = AwaitedFile(start_on_file, poll_rate) if start_on_file else None
        self._exit_file = AwaitedFile(exit_on_file, poll_rate) if exit_on_file else None
        self._kill_timeout = kill_timeout
        # A SimpleQueue is reentrant: a signal handler may put an event into it while the
        # interrupted thread waits for an event. Locks and conditions of threading could deadlock.
        self._events: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._deadline: float | None = None

    def run(self) -> int:
        """Wait for ``start_on_file``, run the program, and end it if necessary.

        Call this method in the main thread, because it handles signals.

        Returns:
            The program's exit code, negative for a signal; :data:`TIMEOUT_EXIT_CODE` if
            ``start_on_file`` did not appear in time; 128+n if signal n arrived before the program
            was started; 127 if the program does not exist; 126 if it cannot be executed.
        """
        if self._timeout is not None:
            self._deadline = time.monotonic() + self._timeout
        with _signals_to(self._events), _adopting_orphans():
            exit_code = self._wait_to_start()
            return self._run_program() if exit_code is None else exit_code

    def _wait_to_start(self) -> int | None:
        """Wait for ``start_on_file``; return an exit code if the program must not be started."""
        if self._start_file is None:
            return None
        _print(f"waiting for {self._start_file}")
        while not self._start_file.exists():
            if self._is_overdue():
                _print(
                    f"{self._start_file} did not appear within {self._timeout:g} s, not starting"
                )
                return TIMEOUT_EXIT_CODE
            signum = self._next_event(self._deadline, self._start_file)
            if signum is not None:
                _print(f"got {signal.Signals(signum).name} before the start")
                return 128 + signum
        return None

    def _run_program(self) -> int:
        try:
            process = subprocess.Popen(
                self._command, start_new_session=True, preexec_fn=_die_with_monitor()
            )
        except OSError as error:
            _print(f"cannot start {self._command[0]}: {error.strerror}")
            is_missing = isinstance(error, FileNotFoundError)
            return COMMAND_NOT_FOUND if is_missing else COMMAND_NOT_EXECUTABLE
        except ValueError as error:  # an argument contains a NUL byte
            raise ProgramError(f"cannot start {self._command[0]!r}: {error}") from None
        try:
            _print(f"started {self._command[0]} as process {process.pid}")
            threading.Thread(target=self._report_exit, args=(process,), daemon=True).start()
            signum = self._watch()
            self._end_group(process, signum)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            code = process.wait()
        _print(f"process exited with exit code {code}")
        return code

    def _report_exit(self, process: subprocess.Popen[bytes]) -> None:
        # Block signals in this thread, so that they interrupt the main thread. Only the main thread
        # runs Python's signal handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        process.wait()
        self._events.put(_EXITED)

    def _watch(self) -> int:
        """Wait until the program exits or must be ended; return `_EXITED` or the signal to send."""
        while True:
            event = self._next_event(self._deadline, self._exit_file)
            if event is not None:
                if event != _EXITED:
                    _print(f"got {signal.Signals(event).name}, passing it on")
                return event
            if self._is_overdue():
                _print(f"the timeout of {self._timeout:g} s is over, terminating")
                return signal.SIGTERM
            if self._exit_file is not None and self._exit_file.exists():
                _print(f"{self._exit_file} exists, terminating")
                return signal.SIGTERM

    def _end_group(self, process: subprocess.Popen[bytes], signum: int) -> None:
        """Send a signal to the process group, and wait until it has ended or must be killed.

        The wait takes at most ``kill_timeout``. The caller kills the processes that are left.

        Args:
            process: The program.
            signum: Signal to send, or :data:`_EXITED` if the program has already exited.
        """
        deadline = time.monotonic() + self._kill_timeout
        is_running = signum != _EXITED
        while is_running:
            _signal_group(process.pid, signum)
            event = self._next_event(deadline)
            if event is None:
                _print(f"still running {self._kill_timeout:g} s later, killing")
                return
            is_running, signum = event != _EXITED, event
        # The program has exited, but its children may still run: send SIGTERM to them and poll.
        if _group_exists(process.pid):
            _signal_group(process.pid, signal.SIGTERM)
        while _group_exists(process.pid) and time.monotonic() < deadline:
            time.sleep(_GROUP_POLL_SECONDS)

    def _next_event(self, deadline: float | None, file: AwaitedFile | None = None) -> int | None:
        """Wait for an event; return None at ``deadline``, or when ``file`` has to be polled."""
        waits = [] if deadline is None else [deadline - time.monotonic()]
        if file is not None:
            waits.append(file.interval)
        try:
            return self._events.get(timeout=max(_SHORTEST_WAIT, min(waits)) if waits else None)
        except queue.Empty:
            return None

    def _is_overdue(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline


class AwaitedFile:
    """A file whose existence starts or ends the program.

    Args:
        url: An fsspec URL.
        poll_rate: Time between two polls, in seconds; at most 0.1 on a local file system.

    Attributes:
        interval: Time between two polls, in seconds.
    """

    def __init__(self, url: str, poll_rate: float) -> None:
        from .locations import Location

        self._location = location = Location.of(url)
        self._last_problem = ""
        self.interval = min(poll_rate, _LOCAL_POLL_SECONDS) if location.is_local else poll_rate

    def __str__(self) -> str:
        return str(self._location)

    def exists(self) -> bool:
        """Return whether the file exists.

        An error of the file system is printed, and the file is then considered missing.
        """
        location = self._location
        if location.is_local:
            return os.path.exists(location.path)
        try:
            location.fs.invalidate_cache()
            return bool(location.fs.exists(location.path))
        except Exception as error:  # a network error must not end the monitored program
            problem = one_line(error)
            if problem != self._last_problem:
                _print(f"cannot check {self}: {problem}")
            self._last_problem = problem
            return False


@contextlib.contextmanager
def _signals_to(events: queue.SimpleQueue[int]) -> Iterator[None]:
    """Put received signals into ``events``; signals that are ignored (``nohup``) stay ignored."""

    def put(signum: int, frame: FrameType | None) -> None:
        events.put(signum)

    handled = [signum for signum in _FORWARDED if signal.getsignal(signum) != signal.SIG_IGN]
    previous = {signum: signal.signal(signum, put) for signum in handled}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make this process the parent of the program's orphans, so that it can wait for their end."""
    if sys.platform != "linux":
        yield
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    previous = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(previous))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, previous)


def _die_with_monitor() -> Callable[[], None] | None:
    """Return a ``preexec_fn``: the kernel then kills the child when the monitor ends.

    Return None on systems other than Linux.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    # Look up prctl here, because few calls are safe between fork and exec.
    prctl = ctypes.CDLL(None).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

    return set_signal


def _signal_group(group: int, signum: int) -> None:
    # On macOS, killpg raises PermissionError if all processes of the group are zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def _group_exists(group: int) -> bool:
    """Return whether the process group still has processes; its leader must have been reaped."""
    # Orphans are children of this process (see _adopting_orphans); reap those that have exited.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return sys.platform == "linux"
    return True


def _print(message: str) -> None:
    print(f"{PROG}: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main, PROG)
