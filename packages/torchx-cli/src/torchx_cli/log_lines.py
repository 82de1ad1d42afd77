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
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from torchx_cli.colors import ENDC, GREEN
from torchx_specs.errors import RequestError, UnknownAppException, nearest
from torchx_specs.handles import make_app_handle
from torchx_specs.status import is_started

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_runner import Runner
    from torchx_specs.app import AppDef
    from torchx_specs.schedulers import Stream

logger = logging.getLogger(__name__)

FORM = "SCHEDULER://[SESSION_NAME]/APP_ID[/ROLE_NAME[/REPLICA_IDS,...]]"

#: Replicas that are read at the same time: when they are followed, and when they have ended.
MAX_FOLLOWED = 256
MAX_READ = 8

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
    from torchx_cli.waiting import intervals

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
    """

    _MOST = 1 << 20  # characters that wait to be written

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
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
                    self._error = e if isinstance(e, OSError) else BrokenPipeError(str(e))
                    self._closed = True
                    self._changed.notify_all()
                return
            if done:
                return


class LogReader:
    """Reads the logs of some replicas at the same time, and writes their lines.

    Args:
        runner: asks the scheduler
        app_handle: the app
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
        self._runner = runner
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
        self._running = 0
        self._errors: list[BaseException] = []
        self._ended = threading.Event()
        #: counts lines, so that one can see whether more arrive
        self.lines = 0

    def start(self) -> None:
        """Starts to read, in threads that do not keep the process from ending."""
        self._writer = LineWriter(self._stream)
        if not self._count:
            self._ended.set()
        self._running = self._count
        for number in range(self._count):
            threading.Thread(target=self._work, name=f"log-{number}", daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of every log; False if the time (in seconds) ran out before."""
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Writes what was read so far, and nothing after that."""
        with self._lock:
            self._todo.clear()
        self._writer.close()

    def finish(self) -> None:
        """Waits for the end of every log and writes what is left.

        Raises:
            Exception: the first that a log ended with; the others are logged
        """
        self._ended.wait()
        self.stop()
        for error in self._errors[1:]:
            logger.error("%s", error)
        if self._errors:
            raise self._errors[0]

    def read_all(self) -> None:
        """Reads to the end of every log; what :meth:`start` and :meth:`finish` do."""
        self.start()
        try:
            self.finish()
        except BaseException:
            self._ended.set()
            try:
                self.stop()
            except OSError:
                pass  # told already, or nobody is there to be told
            raise

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._todo:
                    break
                role, index = self._todo.popleft()
            try:
                self._copy(role, index)
            except BaseException as e:  # raised again by finish()
                with self._lock:
                    self._errors.append(e)
                    if isinstance(e, BrokenPipeError):
                        self._todo.clear()
                if isinstance(e, BrokenPipeError):
                    self._ended.set()
        with self._lock:
            self._running -= 1
            if not self._running:
                self._ended.set()

    def _copy(self, role: str, index: int) -> None:
        on, off = self._color
        prefix = f"{on}{role}/{index}{off} "
        write = self._writer.write
        for line in self._lines(role, index):
            self.lines += 1
            # the last line of a log may lack its end; the next one is not to be glued to it
            write(_prefix_line(prefix, line if line[-1:] == "\n" else line + "\n"))

    def _lines(self, role: str, index: int) -> Iterable[str]:
        options = self._options
        if options.last is None:
            return self._ask(role, index, options.tail)
        return _last_lines(lambda tail: self._ask(role, index, tail), options.last, options.tail)

    def _ask(self, role: str, index: int, tail: bool) -> Iterable[str]:
        options = self._options
        return self._runner.log_lines(
            self._app_handle,
            role,
            index,
            options.regex,
            since=options.since,
            until=options.until,
            should_tail=tail,
            streams=options.streams,
        )


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
