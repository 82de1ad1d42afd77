"""Log lines of an app: which replicas, how they are told apart, and how they are merged.

Replicas are read at the same time and written as whole lines, each with ``role/replica`` before it.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from torchx_cli.output.colors import ENDC, GREEN
from torchx_kit.logs.file_logs import FileLog, follow_all
from torchx_specs.errors import RequestError, UnknownAppException, nearest
from torchx_specs.model.handles import make_app_handle
from torchx_specs.model.status import is_started

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.schedulers import Stream

logger = logging.getLogger(__name__)

FORM = "SCHEDULER://[SESSION_NAME]/APP_ID[/ROLE_NAME[/REPLICA_IDS,...]]"

#: Replicas that are read at the same time: when they are followed, and when they have ended.
MAX_FOLLOWED = 256
MAX_READ = 8
# How long the scheduler may take for the first log before others are asked for beside it.
_ANSWER_SECONDS = 0.05
# How long a signal may wait to be handled.
_SIGNAL_SECONDS = 0.5
# So many lines of a file are written together.
_SOME_LINES = 512

# not compiled until one is read: `torchx run` has no need of it
_IDENTIFIER = (
    r"(?P<scheduler>[^:/\s]+)://(?P<session>[^/]*)/(?P<app>[^/]+)"
    r"(/(?P<role>[^/]+)(/(?P<ids>\d+(-\d+)?(,\d+(-\d+)?)*),?)?)?/?\Z"
)


class LogSource(NamedTuple):
    """What a log identifier names.

    Attributes:
        app_handle: the app
        role: one of its roles, or None for all
        replicas: some of the role's replicas, or None for all
    """

    app_handle: str
    role: str | None = None
    replicas: tuple[int, ...] | None = None


class LogOptions(NamedTuple):
    """Which lines of a log.

    Attributes:
        regex: only those in which this is found
        since: only those written at that time or later
        until: only those written before that time
        tail: follow the log until the replica has ended
        streams: stdout, stderr or both; the scheduler's default if None
        last: of each replica only the last so many
    """

    regex: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tail: bool = False
    streams: Stream | None = None
    last: int | None = None


def parse_identifier(identifier: str) -> LogSource:
    """Returns what a log identifier names.

    >>> parse_identifier("k8s://torchx/ns:train-x1/trainer/0,2-4")
    LogSource(app_handle='k8s://torchx/ns:train-x1', role='trainer', replicas=(0, 2, 3, 4))

    Raises:
        RequestError: it is not of the right form
    """
    found = re.match(_IDENTIFIER, identifier)
    if found is None:
        raise RequestError(f"'{identifier}' is not of the form {FORM}")
    handle = make_app_handle(found["scheduler"], found["session"], found["app"])
    return LogSource(handle, found["role"], _ids(found["ids"]) if found["ids"] else None)


def _ids(text: str) -> tuple[int, ...]:
    ids: dict[int, None] = {}
    for item in filter(None, text.split(",")):
        first, _, last = item.partition("-")
        ids.update(dict.fromkeys(range(int(first), int(last or first) + 1)))
    return tuple(ids)


def validate(job_identifier: str) -> None:
    """Exits with 1 if a log identifier is not of the right form."""
    try:
        parse_identifier(job_identifier)
    except RequestError as e:
        logger.error("%s", e)
        sys.exit(1)


def find_role_replicas(app: AppDef, role_name: str | None) -> list[tuple[str, int]]:
    """Returns the replicas of a role, or of all roles if that is None, as (role, index)."""
    return [
        (role.name, index)
        for role in app.roles
        if role_name is None or role_name == role.name
        for index in range(role.num_replicas)
    ]


def _prefix_line(prefix: str, line: str) -> str:
    """Returns a line with ``prefix`` before it, and after each ``\\r`` and ``\\n`` within it."""
    head = line[:1] if line[:1] == "\r" else ""
    text, end = (line[len(head) :], "")
    if text.endswith("\n"):
        text, end = text[:-1], "\n"
    if "\r" in text or "\n" in text:
        text = text.replace("\r", f"\r{prefix}").replace("\n", f"\n{prefix}")
    return f"{head}{prefix}{text}{end}"


def resolve(runner: Runner, identifier: str) -> tuple[str, list[tuple[str, int]]]:
    """Returns the app and the replicas that a log identifier names, once the app has started.

    Raises:
        RequestError: malformed, or there is no such role or replica
        UnknownAppException: there is no such app
    """
    source = parse_identifier(identifier)
    return source.app_handle, started_replicas(runner, source)


def started_replicas(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    """Returns the replicas of an app, or some of them, once it has started.

    Raises:
        RequestError: there is no such role or replica
        UnknownAppException: there is no such app
    """
    from torchx_cli.launch.waiting import intervals

    waiting = False
    for interval in intervals():
        status = runner.status(source.app_handle)
        if status is None:
            raise UnknownAppException(source.app_handle)
        if is_started(status.state):
            break
        if not waiting:
            waiting = True
            logger.info("waiting for %s to start", source.app_handle)
        _sleep(interval)
    return _replicas_of(runner, source)


def _replicas_of(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    app = runner.describe(source.app_handle)
    if app is None:
        raise UnknownAppException(source.app_handle)
    if source.role is not None and source.replicas is not None and not app.roles:
        # a scheduler may forget the roles of an app whose logs it still has
        return [(source.role, index) for index in source.replicas]
    there = find_role_replicas(app, source.role)
    if source.role is not None and not there:
        names = [role.name for role in app.roles]
        raise RequestError(
            f"{source.app_handle} has no role '{source.role}';{nearest(source.role, names)}"
            f" roles: {', '.join(names)}"
        )
    if source.replicas is None:
        return there
    for index in source.replicas:
        if (source.role, index) not in there:
            raise RequestError(
                f"role '{source.role}' has no replica {index}; it has 0 to {len(there) - 1}"
            )
    return [(str(source.role), index) for index in source.replicas]


def _sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


# -- merging ---------------------------------------------------------------------------------------


class LineWriter:
    """Writes text that several threads give it, each piece whole, in as few writes as possible.

    A thread of its own writes what has come in since its last write; those that give text wait
    only where the reader is slower than they are.

    Args:
        stream: where the text goes
        failed: called, by that thread, once the text can go there no more
    """

    _MOST = 1 << 20  # characters that wait to be written

    def __init__(self, stream: TextIO, failed: Callable[[], None] = lambda: None) -> None:
        self._stream = stream
        self._failed = failed
        self._pending: list[str] = []
        self._size = 0
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Takes a piece of text.

        Raises:
            BrokenPipeError: whoever read the stream has closed it
        """
        with self._changed:
            while self._size > self._MOST and not self._closed:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if self._closed:
                return
            self._pending.append(text)
            self._size += len(text)
            if len(self._pending) == 1:
                self._changed.notify_all()

    def close(self) -> None:
        """Writes what is left, and takes no more.

        Raises:
            BrokenPipeError: whoever read the stream has closed it
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closed:
                    self._changed.wait()
                text = "".join(self._pending)
                self._pending.clear()
                self._size = 0
                done = self._closed
                self._changed.notify_all()
            try:
                if text:
                    self._stream.write(text)
                    self._stream.flush()
            except (OSError, ValueError) as e:
                with self._changed:
                    told = isinstance(e, (OSError, UnicodeError))
                    self._error = e if told else BrokenPipeError(str(e))  # it was closed
                    self._closed = True
                    self._changed.notify_all()
                self._failed()
                return
            if done:
                return


class LogReader:
    """Reads the logs of some replicas at the same time, and writes their lines.

    Args:
        runner: asks the scheduler
        app_handle: the app, which exists
        replicas: which of its replicas
        options: which lines
        stream: where they go
        colorize: True for a coloured prefix
    """

    def __init__(
        self,
        runner: Runner,
        app_handle: str,
        replicas: Sequence[tuple[str, int]],
        options: LogOptions,
        stream: TextIO,
        colorize: bool = False,
    ) -> None:
        self._log_lines = _log_lines_of(runner)
        self._app_handle = app_handle
        self._options = options
        self._stream = stream
        self._color = ("\033[32m", "\033[0m") if colorize else ("", "")
        self._todo = deque(replicas)
        self._count = min(len(replicas), MAX_FOLLOWED if options.tail else MAX_READ)
        if options.tail and len(replicas) > MAX_FOLLOWED:
            logger.warning(
                "following %d replicas at once; the other %d come as those end",
                MAX_FOLLOWED,
                len(replicas) - MAX_FOLLOWED,
            )
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._running = 0
        self._is_stopped = False
        self._writer: LineWriter | None = None
        self._errors: list[BaseException] = []
        self._ended = threading.Event()
        #: counts lines, so that one can see whether more arrive
        self.lines = 0

    def start(self) -> None:
        """Starts to read, in threads that do not keep the process from ending."""
        self._writer = LineWriter(self._stream, self._give_up)
        if not self._count:
            self._ended.set()
            return
        self._start(self._work)
        # files take one thread for all of them; that they are files, the first answer tells
        if not self._answered.wait(_ANSWER_SECONDS):
            self._start_others()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of every log; False if the time (in seconds) ran out before."""
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Writes what was read so far, and nothing after that."""
        with self._lock:
            self._todo.clear()
            self._is_stopped = True
        if self._writer is not None:
            self._writer.close()

    def finish(self) -> None:
        """Waits for the end of every log and writes what is left.

        Raises:
            Exception: the first that a log ended with; the others are logged
        """
        # not for ever: a signal that comes just before a wait would be handled after it only
        while not self._ended.wait(_SIGNAL_SECONDS):
            pass
        self.stop()
        for error in self._errors[1:]:
            logger.error("%s", error)
        if self._errors:
            raise self._errors[0]

    def read_all(self) -> None:
        """Reads to the end of every log; what :meth:`start` and :meth:`finish` do."""
        try:
            self.start()
            self.finish()
        except BaseException:
            self._ended.set()
            try:
                self.stop()
            except OSError:
                pass  # told already, or nobody is there to be told
            raise

    def _start(self, task: Callable[[], None]) -> None:
        """Runs something in a thread of its own; the last one to end ends the reading."""

        def run() -> None:
            try:
                task()
            except BaseException as e:  # raised again by finish()
                self._failed(e)
            finally:
                with self._lock:
                    self._running -= 1
                    is_last = not self._running
                if is_last:
                    self._ended.set()

        with self._lock:
            self._running += 1
            name = f"log-{self._running}"
        threading.Thread(target=run, name=name, daemon=True).start()

    def _start_others(self) -> None:
        """Starts as many threads as there are logs to read at the same time, beside the first."""
        with self._lock:
            others, self._count = self._count - 1, 1
        for _ in range(others):
            self._start(self._work)

    def _next(self) -> tuple[str, int] | None:
        with self._lock:
            return self._todo.popleft() if self._todo else None

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            self._errors.append(error)
        if isinstance(error, BrokenPipeError):
            self._give_up()

    def _give_up(self) -> None:
        """Ends the reading: nobody is there for what is read."""
        with self._lock:
            self._todo.clear()
            self._is_stopped = True
            self._ended.set()

    def _work(self) -> None:
        while (replica := self._next()) is not None:
            try:
                lines = self._lines(*replica)
                log = lines if isinstance(lines, FileLog) else None
                if log is None or (self._options.tail and not log.is_shareable):
                    self._start_others()
                self._answered.set()
                if log is not None and log.is_shareable:
                    self._follow(replica, log)
                else:
                    self._copy(replica, lines)
            except BaseException as e:  # raised again by finish()
                self._failed(e)

    def _follow(self, first: tuple[str, int], log: FileLog) -> None:
        """Follows this log and all those that were not begun yet."""
        for replica, found in follow_all(self._logs(first, log), MAX_FOLLOWED):
            if self._is_stopped:
                return
            if isinstance(found, Exception):
                self._failed(found)
            else:
                self._write(replica, found)

    def _logs(
        self, first: tuple[str, int], log: FileLog
    ) -> Iterator[tuple[tuple[str, int], FileLog]]:
        yield first, log
        while (replica := self._next()) is not None:
            try:
                lines = self._lines(*replica)
            except Exception as e:  # raised again by finish()
                self._failed(e)
                continue
            if isinstance(lines, FileLog) and lines.is_shareable:
                yield replica, lines
            else:
                self._start(partial(self._copy, replica, lines))

    def _copy(self, replica: tuple[str, int], lines: Iterable[str]) -> None:
        if isinstance(lines, FileLog) and not self._options.tail:
            there = iter(lines)
            while some := list(islice(there, _SOME_LINES)):
                self._write(replica, some)
            return
        for line in lines:
            self._write(replica, (line,))

    def _write(self, replica: tuple[str, int], lines: Iterable[str]) -> None:
        on, off = self._color
        prefix = f"{on}{replica[0]}/{replica[1]}{off} "
        # the last line of a log may lack its end; the next one is not to be glued to it
        whole = [_prefix_line(prefix, line if line[-1:] == "\n" else line + "\n") for line in lines]
        if whole and self._writer is not None:
            self.lines += len(whole)
            self._writer.write("".join(whole))

    def _lines(self, role: str, index: int) -> Iterable[str]:
        options = self._options
        if options.last is None:
            return self._ask(role, index, options.tail)
        return _last_lines(lambda tail: self._ask(role, index, tail), options.last, options.tail)

    def _ask(self, role: str, index: int, tail: bool) -> Iterable[str]:
        options = self._options
        return self._log_lines(
            self._app_handle,
            role,
            index,
            options.regex,
            since=options.since,
            until=options.until,
            should_tail=tail,
            streams=options.streams,
        )


def _log_lines_of(runner: Runner) -> Callable[..., Iterable[str]]:
    """Returns the function that returns a replica's lines."""
    from torchx_runner import Runner

    # a subclass, or a double, may have one of its own
    is_ours = getattr(type(runner), "log_lines", None) is Runner.log_lines
    return partial(runner.log_lines, known=True) if is_ours else runner.log_lines


def _last_lines(ask: Callable[[bool], Iterable[str]], last: int, tail: bool) -> Iterator[str]:
    """Yields the last lines of a log as it is, then those that are added if it is followed."""
    count = 0
    kept: deque[str] = deque(maxlen=last)
    for line in ask(False):
        kept.append(line)
        count += 1
    if not tail:
        yield from kept
        return
    # the last line may not have been whole: what is kept is taken from the second reading
    first = count - len(kept)
    for number, line in enumerate(ask(True)):
        if number >= first:
            yield line


def get_logs(
    file: TextIO,
    identifier: str,
    regex: str | None,
    should_tail: bool = False,
    runner: Runner | None = None,
    streams: Stream | None = None,
) -> None:
    """Writes the logs that an identifier names, each line after ``role/replica``.

    Args:
        file: where to
        identifier: ``scheduler://session/app[/role[/replicas]]``
        regex: only lines in which this is found
        should_tail: follow the logs until the replicas have ended
        runner: asks the scheduler; a new one if None
        streams: stdout, stderr or both, the scheduler's default if None

    Raises:
        RequestError: malformed, or there is no such role or replica
        UnknownAppException: there is no such app
    """
    if runner is None:
        from torchx_cli.session import open_runner

        with open_runner() as own:
            get_logs(file, identifier, regex, should_tail, own, streams)
        return
    app_handle, replicas = resolve(runner, identifier)
    options = LogOptions(regex=regex, tail=should_tail, streams=streams)
    LogReader(runner, app_handle, replicas, options, file, bool(GREEN and ENDC)).read_all()


def tee_logs(
    dst: TextIO,
    app_handle: str,
    regex: str | None,
    runner: Runner,
    should_tail: bool = False,
    streams: Stream | None = None,
    colorize: bool = False,
) -> threading.Thread:
    """Returns a daemon thread, not yet started, that copies the logs of an app once it has started.

    Args:
        dst: where to
        app_handle: the app
        regex: only lines in which this is found
        runner: asks the scheduler
        should_tail: follow the logs until the replicas have ended
        streams: stdout, stderr or both, the scheduler's default if None
        colorize: True for a coloured prefix
    """

    def copy() -> None:
        replicas = started_replicas(runner, LogSource(app_handle))
        options = LogOptions(regex=regex, tail=should_tail, streams=streams)
        LogReader(runner, app_handle, replicas, options, dst, colorize).read_all()

    return threading.Thread(target=copy, name="tee-logs", daemon=True)


def print_log_lines(
    file: TextIO,
    runner: Runner,
    app_handle: str,
    role_name: str,
    replica_id: int,
    regex: str | None,
    should_tail: bool,
    exceptions: Any,
    streams: Stream | None = None,
) -> None:
    """Copies the log of one replica; an exception goes into the queue ``exceptions``."""
    try:
        for line in runner.log_lines(
            app_handle, role_name, replica_id, regex, should_tail=should_tail, streams=streams
        ):
            file.write(_prefix_line(f"{GREEN}{role_name}/{replica_id}{ENDC} ", line))
    except Exception as e:  # whoever reads the queue raises it
        exceptions.put(e)
        raise
