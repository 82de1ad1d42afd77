"""Runs a program and ends it when a time is over or a file appears.

    python -m torchx_apps.process_monitor --timeout 3600 --exit_on_file s3://bucket/done -- \\
        tensorboard --logdir s3://bucket/logs

* The exit code is the program's (as Python counts it: -15 if SIGTERM ended it), or
  :data:`TIMEOUT_EXIT_CODE` if ``--start_on_file`` did not appear in time.
* Ending means SIGTERM for the program and all that it started, SIGKILL after ``--kill_timeout``.
* SIGTERM, SIGINT and SIGHUP are passed on to the program, which then has ``--kill_timeout`` too.
* Nothing the program started in its process group outlives this monitor.

The program's exit and signals wake the monitor at once. A file is looked for: every
``--poll_rate`` seconds, on a local filesystem at least ten times a second.
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

    from .locations import Location

PROG = "torchx_apps.process_monitor"
TIMEOUT_EXIT_CODE = 34
COMMAND_NOT_FOUND, COMMAND_NOT_EXECUTABLE = 127, 126  # as every shell has it

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOCAL_POLL_SECONDS = 0.1
_GROUP_POLL_SECONDS = 0.02
# Python 3.10 may wait for ever when a wait so short is over before it has begun.
_SHORTEST_WAIT = 0.001  # seconds
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # from Linux's <sys/prctl.h>

_EXITED = 0
"""Put among the numbers of signals once the program has exited."""


def parse_args(argv: list[str]) -> Namespace:
    """Reads the program's arguments; exits with code 2 and one line if they are wrong."""
    parser = ArgumentParser(
        prog=PROG, description="runs a program and ends it when a condition is met"
    )
    parser.add_argument(
        "--timeout",
        type=not_negative_float,
        help="seconds after which the program is ended, waiting for --start_on_file included",
    )
    parser.add_argument("--start_on_file", help="fsspec path; start the program once it exists")
    parser.add_argument("--exit_on_file", help="fsspec path; end the program once it exists")
    parser.add_argument(
        "--poll_rate",
        type=positive_float,
        default=5,
        help="seconds between looking for a file (default: %(default)s)",
    )
    parser.add_argument(
        "--kill_timeout",
        type=not_negative_float,
        default=60,
        help="seconds from asking the program to end until it is killed (default: %(default)s)",
    )
    # One positional for both: argparse treats "--" inside the remainder alike in all Pythons.
    parser.add_argument(
        "command",
        nargs="...",
        metavar="entrypoint args",
        help="the program to run and its arguments, best after --",
    )
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("the following arguments are required: entrypoint")
    del args.command
    args.entrypoint, args.args = command[0], command[1:]
    return args


def main(argv: list[str]) -> None:
    """Runs the program under watch and exits with its exit code."""
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
    """One program and the conditions that start and end it.

    Args:
        command: The program and its arguments.
        timeout: Seconds after which it is ended, counted from :meth:`run`.
        start_on_file: An fsspec path; the program starts once it exists. Empty means unset.
        exit_on_file: An fsspec path; the program is ended once it exists. Empty means unset.
        poll_rate: Seconds between two looks for a file.
        kill_timeout: Seconds from asking the program to end until it is killed.

    Raises:
        ProgramError: One of the files is not a valid fsspec location.
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
        self._start_file = AwaitedFile.of(start_on_file, poll_rate)
        self._exit_file = AwaitedFile.of(exit_on_file, poll_rate)
        self._kill_timeout = kill_timeout
        # Numbers of signals, and _EXITED. A signal handler may put into a SimpleQueue while the
        # thread that it interrupted waits on that same queue; most of threading does not allow it.
        self._events: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._deadline: float | None = None

    def run(self) -> int:
        """Waits, runs the program, ends it where needed. Call it in the main thread.

        Returns:
            The program's exit code, negative if a signal ended it; :data:`TIMEOUT_EXIT_CODE` if
            the file to start on did not appear in time; 128+n if signal n came before the start;
            127 or 126 if the program cannot be started.
        """
        if self._timeout is not None:
            self._deadline = time.monotonic() + self._timeout
        with _signals_to(self._events):
            refusal = self._wait_to_start()
            return self._run_program() if refusal is None else refusal

    def _wait_to_start(self) -> int | None:
        """Returns the code to exit with if the program is not to start at all."""
        if self._start_file is None:
            return None
        _say(f"waiting for {self._start_file}")
        while not self._start_file.exists():
            if self._is_overdue():
                _say(f"{self._start_file} did not appear within {self._timeout:g} s, not starting")
                return TIMEOUT_EXIT_CODE
            signum = self._next_event(self._deadline, self._start_file)
            if signum is not None:
                _say(f"got {signal.Signals(signum).name} before the start")
                return 128 + signum
        return None

    def _run_program(self) -> int:
        _adopt_orphans()
        try:
            process = subprocess.Popen(
                self._command, start_new_session=True, preexec_fn=_die_with_monitor()
            )
        except OSError as error:
            _say(f"cannot start {self._command[0]}: {error.strerror}")
            is_missing = isinstance(error, FileNotFoundError)
            return COMMAND_NOT_FOUND if is_missing else COMMAND_NOT_EXECUTABLE
        except ValueError as error:  # a NUL byte in an argument
            raise ProgramError(f"cannot start {self._command[0]!r}: {error}") from None
        try:
            _say(f"started {self._command[0]} as process {process.pid}")
            threading.Thread(target=self._report_exit, args=(process,), daemon=True).start()
            signum = self._watch()
            self._end_group(process, signum)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            code = process.wait()
        _say(f"process exited with exit code {code}")
        return code

    def _report_exit(self, process: subprocess.Popen[bytes]) -> None:
        # Python's handlers run in the main thread, so the kernel must wake that one.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        process.wait()
        self._events.put(_EXITED)

    def _watch(self) -> int:
        """Returns the signal to end the program with, or :data:`_EXITED` if it ended by itself."""
        while True:
            event = self._next_event(self._deadline, self._exit_file)
            if event is not None:
                if event != _EXITED:
                    _say(f"got {signal.Signals(event).name}, passing it on")
                return event
            if self._is_overdue():
                _say(f"the timeout of {self._timeout:g} s is over, terminating")
                return signal.SIGTERM
            if self._exit_file is not None and self._exit_file.exists():
                _say(f"{self._exit_file} exists, terminating")
                return signal.SIGTERM

    def _end_group(self, process: subprocess.Popen[bytes], signum: int) -> None:
        """Asks the whole group to end and waits, for as long as it may take."""
        deadline = time.monotonic() + self._kill_timeout
        is_running = signum != _EXITED
        while is_running:
            _signal_group(process.pid, signum)
            event = self._next_event(deadline)
            if event is None:
                _say(f"still running {self._kill_timeout:g} s later, killing")
                return
            is_running, signum = event != _EXITED, event
        # The program is gone. What it started may need the signal still, and nobody reports it.
        if _group_exists(process.pid):
            _signal_group(process.pid, signal.SIGTERM)
        while _group_exists(process.pid) and time.monotonic() < deadline:
            time.sleep(_GROUP_POLL_SECONDS)

    def _next_event(self, deadline: float | None, file: AwaitedFile | None = None) -> int | None:
        """Waits for an event, at most until ``deadline`` and until it is time to look for a file.

        Returns:
            The event; None if the time is over.
        """
        waits = [] if deadline is None else [max(0.0, deadline - time.monotonic())]
        if file is not None:
            waits.append(file.interval)
        timeout = min(waits) if waits else None
        try:
            if timeout is not None and timeout < _SHORTEST_WAIT:
                return self._events.get_nowait()
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _is_overdue(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline


class AwaitedFile:
    """A file whose appearance means something.

    Args:
        location: Where it will be.
        poll_rate: Seconds between two looks, if it is not on a local filesystem.

    Attributes:
        interval: Seconds to wait before looking again.
    """

    def __init__(self, location: Location, poll_rate: float) -> None:
        self._location = location
        self._last_problem = ""
        self.interval = min(poll_rate, _LOCAL_POLL_SECONDS) if location.is_local else poll_rate

    @classmethod
    def of(cls, url: str | None, poll_rate: float) -> AwaitedFile | None:
        """Reads an fsspec path; None and the empty string mean that no file is awaited."""
        if not url:
            return None
        from .locations import Location

        return cls(Location.of(url), poll_rate)

    def __str__(self) -> str:
        return str(self._location)

    def exists(self) -> bool:
        """Looks now. A filesystem that fails to answer is reported, and counts as no."""
        location = self._location
        if location.is_local:
            return os.path.exists(location.path)
        try:
            location.fs.invalidate_cache()
            return bool(location.fs.exists(location.path))
        except Exception as error:  # a network's hiccup is no reason to end the program
            problem = one_line(error)
            if problem != self._last_problem:
                _say(f"cannot look for {self}: {problem}")
            self._last_problem = problem
            return False


@contextlib.contextmanager
def _signals_to(events: queue.SimpleQueue[int]) -> Iterator[None]:
    """Turns signals into events; one that was ignored at the start (``nohup``) stays ignored."""

    def put(signum: int, frame: FrameType | None) -> None:
        events.put(signum)

    taken = [one for one in _PASSED_ON if signal.getsignal(one) != signal.SIG_IGN]
    previous = {signum: signal.signal(signum, put) for signum in taken}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _adopt_orphans() -> None:
    """Has what the program leaves behind become ours, so that we can wait for it to be gone."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _die_with_monitor() -> Callable[[], None] | None:
    """What the program does before it starts, so that SIGKILL for the monitor ends it too."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec little is allowed

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

    return set_signal


def _signal_group(group: int, signum: int) -> None:
    # PermissionError: macOS says so of a group that only has zombies left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def _group_exists(group: int) -> bool:
    """Whether processes of the group are left, once its leader has been waited for."""
    # Orphans are ours (see _adopt_orphans), and are there until we have waited for them.
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


def _say(message: str) -> None:
    print(f"{PROG}: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main, PROG)
