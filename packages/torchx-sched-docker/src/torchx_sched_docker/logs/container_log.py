"""Read container logs: each line whole and exactly once, even if the connection breaks."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3.exceptions

from torchx_kit.errors import translated_errors
from torchx_kit.logs.lines import filter_regex
from torchx_kit.retry import Backoff
from torchx_kit.times import NANOSECONDS, parse_rfc3339, to_nanoseconds
from torchx_sched_docker.client import EngineError, NoEngineError, translate_error
from torchx_sched_docker.states import inspected_state
from torchx_specs.errors import BackendError, one_line
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.closing import Closing, closing_of, shut_down
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_sched_docker.scheduler import DockerScheduler

STDOUT = 1
STDERR = 2
_NUMBERS = {
    Stream.STDOUT: frozenset({STDOUT}),
    Stream.STDERR: frozenset({STDERR}),
    Stream.COMBINED: frozenset({STDOUT, STDERR}),
}

#: How long a follower waits for an engine that does not answer, in seconds.
PATIENCE = 120.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_FRAME_HEADER = 8
_CHUNK = 1 << 16
# How many entries to request for each of the last lines, in the first and each further attempt. One
# line may be several entries, and the engine counts the entries of both streams.
_ENTRIES_FOR_EACH_LINE = (1, 16, 256)


class DockerLogs(Logs["DockerScheduler"]):
    """Reads the logs of one engine's containers."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica, by default of both streams.

        Following continues through restarts of the replica and of the engine. The engine adds a
        line to its log only when the line has ended. With ``query.partial``, if the engine is on
        this machine, a helper process attaches to the container and receives incomplete lines at
        once.

        Raises:
            UnknownAppException: The app does not exist.
            UnknownReplicaError: The app has no such role, or the role has no such replica.
            BackendError: The engine does not answer, or refuses the request.
        """
        closing = closing_of(self.scheduler)
        client, container = (
            self.scheduler._docker_client,
            self.scheduler._container_id(app_id, role, k),
        )
        log = ContainerLog(client, container, query, closing)
        since, until = query.since, query.until
        is_now = until is None and (since is None or since.timestamp() <= time.time())
        if query.partial and query.should_tail and not query.regex and is_now:
            from torchx_sched_docker.logs.attachment import follow_with_pieces

            return follow_with_pieces(client, container, log)
        return filter_regex(query.regex, log.lines()) if query.regex else log.lines()


@dataclass
class _Position:
    """The position in one stream: the time of the last entry that was read, and a count.

    The engine does not number entries, and several entries may have the same time. So the position
    also has the number of entries with that time that were read.
    """

    time: int = -1
    count: int = 0


class ContainerLog:
    """The log of one container.

    Args:
        client: The client of the engine.
        container: The container's id.
        query: Which lines; ``regex`` and ``partial`` have no effect.
        closing: Ends a followed log when the scheduler is closed.
        sleep: Function that waits for a number of seconds; None means that of ``closing``.
        clock: Function that returns a time in seconds.
    """

    def __init__(
        self,
        client: DockerClient,
        container: str,
        query: LogQuery,
        closing: Closing | None = None,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._container = container
        #: The numbers of the streams to read.
        self.streams = _NUMBERS[query.streams or Stream.COMBINED]
        self._query = query
        self._since = to_nanoseconds(query.since) if query.since is not None else 0
        self._until = to_nanoseconds(query.until) if query.until is not None else None
        self._closing = closing or Closing()
        self._sleep = sleep or self._closing.sleep
        self._clock = clock
        self._tty = False
        # Skip entries before this time (in nanoseconds), because they precede the last lines.
        self._earliest = 0
        self._begin()

    def _begin(self) -> None:
        """Read from the beginning of the log."""
        self._first_time: int | None = None
        self._positions = {STDOUT: _Position(), STDERR: _Position()}
        self._skip = {STDOUT: 0, STDERR: 0}
        self._partial: dict[int, list[bytes]] = {STDOUT: [], STDERR: []}

    def lines(self) -> Iterator[str]:
        """Yield whole lines with their newlines; the last line of each stream may lack the newline.

        A followed log ends when the container has ended without a restart.

        Raises:
            BackendError: The engine refuses the request, or does not answer; a follower retries for
                :data:`PATIENCE` seconds.
        """
        for _, line in self.stream_lines():
            yield line.decode("utf-8", "replace")

    def stream_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of :meth:`lines` undecoded, each with the number of its stream."""
        last = self._query.last
        if last is not None:
            with translated_errors(lambda e: _translate_log_error(e, self._container)):
                found = self._read_last(last)
            yield from found
        if self._query.should_tail:
            yield from self._closing.until_closed(self._follow())
        elif last is None:
            with translated_errors(lambda e: _translate_log_error(e, self._container)):
                yield from self._read(follow=False)
        for stream, partial in self._partial.items():
            if partial:
                yield stream, b"".join(partial)
                partial.clear()

    def _read_last(self, last: int) -> list[tuple[int, bytes]]:
        """Return the last whole lines, fewer by one for each incomplete line at the log's end.

        An incomplete line stays in ``_partial``, and the caller yields it. The engine counts
        entries, not lines, and counts them before it selects a stream or a time. So this method
        requests more and more entries until there are enough lines, and finally the whole log.
        A stream's first line may lack its beginning, so it must not be among the returned lines.
        An incomplete line counts only if the requested entries contain a part of it.
        """
        self._tty = bool(self._client.api.inspect_container(self._container)["Config"].get("Tty"))
        # The engine applies `tail` before `until`, so with `until` request the whole log.
        factors = _ENTRIES_FOR_EACH_LINE if self._until is None else ()
        for tail in [*(factor * (last + 1) for factor in factors), None]:
            self._begin()
            count = 0
            first_lines: dict[int, int] = {}
            found: deque[tuple[int, bytes]] = deque(maxlen=last)
            for stream, line in self._read(follow=False, tail=tail):
                first_lines.setdefault(stream, count)
                count += 1
                found.append((stream, line))
            incomplete = [stream for stream, parts in self._partial.items() if parts]
            needed = max(0, last - len(incomplete))
            is_enough = (
                count > needed
                and max(first_lines.values()) < count - needed
                and first_lines.keys() >= set(incomplete)
            )
            if tail is None or is_enough:
                break
        if tail is not None and self._first_time is not None:
            # When the log is followed, skip the entries before the last lines.
            self._earliest = self._first_time + 1
        for stream in incomplete[: max(0, len(incomplete) - last)]:
            self._partial[stream].clear()
        return list(found)[max(0, len(found) - needed) :]

    def _follow(self) -> Iterator[tuple[int, bytes]]:
        backoff = Backoff(
            PATIENCE,
            first_pause=_FIRST_PAUSE,
            longest_pause=_LONGEST_PAUSE,
            sleep=self._sleep,
            clock=self._clock,
        )
        while True:
            try:
                attrs = self._client.api.inspect_container(self._container)
                self._tty = bool(attrs["Config"].get("Tty"))
                ended = _has_ended(attrs)
                for found in self._read(follow=not ended):
                    backoff.reset()
                    yield found
                if ended or self._is_past_until():
                    return
            except Exception as e:
                error = _translate_log_error(e, self._container)
                if error is None:
                    raise
                if isinstance(error, EngineError) and 0 < error.status < 500:
                    if error.status == 404:
                        return  # The container was deleted.
                    raise error from e
                backoff.pause_after(error)
            else:
                backoff.pause()  # The log has ended: the container has ended or is restarting.

    def _is_past_until(self) -> bool:
        return self._until is not None and time.time_ns() >= self._until

    def _read(self, follow: bool, tail: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Request the log once, from where the previous request ended; yield each stream and line.

        Args:
            follow: Whether to wait for new lines.
            tail: Read only this many entries at the end of the log; None reads all entries.
        """
        params: dict[str, Any] = {
            "stdout": int(STDOUT in self.streams),
            "stderr": int(STDERR in self.streams),
            "timestamps": 1,
            "follow": int(follow),
            "tail": "all" if tail is None else str(tail),
        }
        since = max(
            self._since,
            self._earliest,
            min(self._positions[stream].time for stream in self.streams),
        )
        if since > 0:
            params["since"] = _seconds(since)
        if self._until is not None:
            params["until"] = _seconds(self._until)
        self._skip = {stream: position.count for stream, position in self._positions.items()}
        api = self._client.api
        response = api._get(
            api._url("/containers/{0}/logs", self._container),
            params=params,
            stream=True,
            timeout=(api.timeout, None),  # A job may write nothing for days.
        )
        with contextlib.closing(response), self._closing.calling(lambda: shut_down(response.raw)):
            api._raise_for_status(response)
            chunks = response.raw.stream(_CHUNK, decode_content=False)
            for stream, entry in _split_lines(chunks) if self._tty else split_frames(chunks):
                line = self._add_entry(stream, entry)
                if line is not None:
                    yield stream, line

    def _add_entry(self, stream: int, entry: bytes) -> bytes | None:
        """Record an entry unless it was read before; return the line that it completes, or None."""
        stamp, _, text = entry.partition(b" ")
        at = parse_rfc3339(stamp)
        if self._first_time is None:
            self._first_time = at
        position = self._positions[stream]
        if at < max(position.time, self._earliest):
            return None
        if at == position.time:
            if self._skip[stream] > 0:
                self._skip[stream] -= 1
                return None
            position.count += 1
        else:
            position.time, position.count = at, 1
        partial = self._partial[stream]
        if at < self._since or (self._until is not None and at >= self._until):
            return None
        if not text.endswith(b"\n"):
            partial.append(text)  # The engine splits lines of more than 16 KiB.
            return None
        if partial:
            partial.append(text)
            text = b"".join(partial)
            partial.clear()
        return text


def _translate_log_error(error: Exception, container: str) -> BackendError | None:
    """Return the TorchX error for an error of docker or the connection, or None for other errors.

    The docker library does not translate the errors of a connection that breaks while a response is
    read, so this function also translates errors of urllib3 and http.client.
    """
    if isinstance(error, (urllib3.exceptions.HTTPError, http.client.HTTPException)):
        return NoEngineError(
            f"lost the log of {container}: the Docker Engine does not answer ({one_line(error)})"
        )
    return translate_error(error, f"read the log of {container}")


def _has_ended(attrs: Mapping[str, Any]) -> bool:
    return attrs["State"]["Status"] == "removing" or is_terminal(inspected_state(attrs))


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds // NANOSECONDS}.{nanoseconds % NANOSECONDS:09}"


def split_frames(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the stream and the content of each frame of a multiplexed log.

    Docker's API reference describes the format under "Attach to a container": one byte for the
    stream, three zero bytes, four bytes for the length, the content. The docker library reads this
    format only frame by frame from a socket, which is too slow for large logs.
    """
    buffer = b""
    for chunk in chunks:
        buffer = buffer + chunk if buffer else chunk
        start, length = 0, len(buffer)
        while length - start >= _FRAME_HEADER:
            content = start + _FRAME_HEADER
            end = content + int.from_bytes(buffer[start + 4 : content], "big")
            if end > length:
                break
            yield buffer[start], buffer[content:end]
            start = end
        buffer = buffer[start:]


def _split_lines(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a container with a terminal, whose only stream is standard output."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from ((STDOUT, line + b"\n") for line in lines)
    if rest:
        yield STDOUT, rest
