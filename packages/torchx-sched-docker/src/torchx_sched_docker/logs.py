"""Logs of a container: whole lines, each output by itself, whatever happens to the connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_docker.client import NoEngineError, engine_errors, is_status, translated
from torchx_sched_docker.states import inspected_state
from torchx_specs.errors import BackendError
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from datetime import datetime

    from docker.client import DockerClient

STDOUT = 1
STDERR = 2

#: How long a follower waits for an engine that has gone away, in seconds.
PATIENCE = 120.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_HEADER = 8
_PIECE = 1 << 16
_NANO = 1_000_000_000


class _Position:
    """How far one output was read: entries have no number, only a time that need not be unique."""

    __slots__ = ("at", "count")

    def __init__(self) -> None:
        self.at = -1
        #: how many entries of that time were read
        self.count = 0


class ContainerLog:
    """The log of one container.

    Args:
        client: of the engine
        identity: the container's id
        outputs: which of :data:`STDOUT` and :data:`STDERR`
        since: only what was written at that time or later
        until: only what was written before that time
        sleep: waits between two attempts
    """

    def __init__(
        self,
        client: DockerClient,
        identity: str,
        outputs: frozenset[int],
        since: datetime | None = None,
        until: datetime | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._identity = identity
        self._outputs = outputs
        self._since = _since_1970(since) if since is not None else 0
        self._until = _since_1970(until) if until is not None else None
        self._sleep = sleep
        self._tty = False
        self._positions = {STDOUT: _Position(), STDERR: _Position()}
        self._skip = {STDOUT: 0, STDERR: 0}
        self._begun: dict[int, list[bytes]] = {STDOUT: [], STDERR: []}

    def lines(self, follow: bool) -> Iterator[str]:
        """Yields the lines, each whole and with its newline; the last of each output may lack it.

        Args:
            follow: go on until the container has ended for good

        Raises:
            BackendError: the engine refuses, or does not come back
        """
        if follow:
            for line in self._followed():
                yield line.decode("utf-8", "replace")
        else:
            with engine_errors(f"read the log of {self._identity}"):
                for line in self._read(follow=False):
                    yield line.decode("utf-8", "replace")
        for begun in self._begun.values():
            if begun:
                yield b"".join(begun).decode("utf-8", "replace")
                begun.clear()

    def _followed(self) -> Iterator[bytes]:
        lost_at: float | None = None
        pause = _FIRST_PAUSE
        ended = False
        while True:
            try:
                attrs = self._client.api.inspect_container(self._identity)
                self._tty = bool(attrs["Config"].get("Tty"))
                ended = _has_ended(attrs)
                for line in self._read(follow=not ended):
                    lost_at, pause = None, _FIRST_PAUSE
                    yield line
                if ended or self._is_past_until():
                    return
            except Exception as e:
                error = _lost(e, self._identity)
                if is_status(error, 404):
                    return  # deleted meanwhile
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at > PATIENCE:
                    raise error from e
            else:
                lost_at = None
            # it has ended, starts again, or the engine is away: another look will tell
            self._sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _is_past_until(self) -> bool:
        return self._until is not None and time.time_ns() >= self._until

    def _read(self, follow: bool) -> Iterator[bytes]:
        """Yields the lines of one request, from where the last one ended."""
        # a line of which only the beginning came is read again from its beginning
        params: dict[str, Any] = {
            "stdout": int(STDOUT in self._outputs),
            "stderr": int(STDERR in self._outputs),
            "timestamps": 1,
            "follow": int(follow),
            "tail": "all",
        }
        since = max(self._since, min(self._positions[output].at for output in self._outputs))
        if since > 0:
            params["since"] = _seconds(since)
        if self._until is not None:
            params["until"] = _seconds(self._until)
        self._skip = {output: position.count for output, position in self._positions.items()}
        api = self._client.api
        response = api._get(
            api._url("/containers/{0}/logs", self._identity),
            params=params,
            stream=True,
            # a job may be silent for days
            timeout=(api.timeout, None),
        )
        try:
            api._raise_for_status(response)
            pieces = response.raw.stream(_PIECE, decode_content=False)
            for output, entry in _raw(pieces) if self._tty else _frames(pieces):
                line = self._take(output, entry)
                if line is not None:
                    yield line
        finally:
            response.close()

    def _take(self, output: int, entry: bytes) -> bytes | None:
        """Notes one entry; returns a line if it ends one."""
        stamp, _, text = entry.partition(b" ")
        at = nanoseconds(stamp)
        position = self._positions[output]
        if at < position.at:
            return None
        if at == position.at:
            if self._skip[output] > 0:
                self._skip[output] -= 1
                return None
            position.count += 1
        else:
            position.at, position.count = at, 1
        begun = self._begun[output]
        if at < self._since or (self._until is not None and at >= self._until):
            return None
        if not text.endswith(b"\n"):
            begun.append(text)  # the engine cuts lines of more than 16 KiB
            return None
        if begun:
            begun.append(text)
            text = b"".join(begun)
            begun.clear()
        return text


def _lost(error: Exception, identity: str) -> Exception:
    """Returns what went wrong as our error if the engine may come back, or has lost the container.

    Raises:
        BackendError: it refuses for good
    """
    import http.client

    import urllib3.exceptions

    if isinstance(error, (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)):
        ours: BackendError | None = NoEngineError(
            f"lost the log of {identity}: the Docker Engine does not answer ({error})"
        )
    else:
        ours = translated(error, f"read the log of {identity}")
    if ours is None:
        raise error
    ours.__cause__ = error
    response = getattr(error, "response", None)
    code = getattr(response, "status_code", None)
    if code is not None and code < 500 and code != 404:
        raise ours
    return ours


def _has_ended(attrs: Mapping[str, Any]) -> bool:
    return attrs["State"]["Status"] == "removing" or is_terminal(inspected_state(attrs))


def _since_1970(when: datetime) -> int:
    """Returns a time (this machine's, if it has no zone) in nanoseconds since 1970, exactly."""
    from datetime import datetime, timedelta, timezone

    past = when.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return past // timedelta(microseconds=1) * 1000


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds // _NANO}.{nanoseconds % _NANO:09}"


def _frames(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields output and content of each frame of a stream that carries several outputs."""
    buffer = b""
    for piece in pieces:
        buffer = buffer + piece if buffer else piece
        start, length = 0, len(buffer)
        while length - start >= _HEADER:
            end = start + _HEADER + int.from_bytes(buffer[start + 4 : start + _HEADER], "big")
            if end > length:
                break
            yield buffer[start], buffer[start + _HEADER : end]
            start = end
        buffer = buffer[start:]


def _raw(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a container that has a terminal, and so only one output."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from ((STDOUT, line + b"\n") for line in lines)
    if rest:
        yield STDOUT, rest


_days: dict[bytes, int] = {}


def nanoseconds(stamp: bytes) -> int:
    """Returns a time as the engine writes it, in nanoseconds since 1970.

    >>> nanoseconds(b"1970-01-02T00:00:01.000000005Z")
    86401000000005
    """
    day = _days.get(stamp[:10])
    if day is None:
        import calendar

        year, month, number = stamp[:10].split(b"-")
        day = calendar.timegm((int(year), int(month), int(number), 0, 0, 0))
        _days[stamp[:10]] = day
    clock = stamp[11:].rstrip(b"Z")
    whole, _, fraction = clock.partition(b".")
    hours, minutes, seconds = whole.split(b":")
    total = day + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return total * _NANO + int(fraction.ljust(9, b"0")[:9] or b"0")
