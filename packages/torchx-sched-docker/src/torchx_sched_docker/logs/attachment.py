"""Follow the log of a container, including text whose newline is not written yet."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from torchx_sched_docker.logs import relay
from torchx_sched_docker.logs.container_log import STDOUT, ContainerLog, split_frames
from torchx_sched_docker.logs.open_lines import OpenLines

if TYPE_CHECKING:
    from docker.client import DockerClient

_CHUNK = 1 << 16
# How many lines may wait for the consumer before the reader of the log pauses.
_MOST_LINES = 8192
# How many chunks of output may wait before the reader of the attached client pauses.
_MOST_CHUNKS = 256
_PAUSE = 0.01
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 2.0
#: States of a container to which a client can be attached.
_ATTACHABLE = frozenset({"created", "running"})


def follow_with_pieces(
    client: DockerClient,
    container: str,
    log: ContainerLog,
) -> Iterator[str]:
    """Follow a container's log; yield each line whole, or in parts as its text is written.

    Text without a newline comes from a client that is attached to the container, which is possible
    if the engine listens on a socket of this machine. On other engines, and whenever the client
    cannot be attached, only whole lines are yielded.

    Args:
        client: The client of the engine.
        container: The container's id.
        log: The log of the container, which is followed.

    Raises:
        BackendError: :meth:`ContainerLog.lines` raised it.
    """
    socket = engine_socket(client)
    if socket is None:
        yield from log.lines()
        return
    with contextlib.closing(_Follower(client, container, log, socket)) as follower:
        yield from follower.items()


def engine_socket(client: DockerClient) -> str | None:
    """Return the path of the engine's Unix socket, or None if the client uses a network address."""
    api = client.api
    path = getattr(api.get_adapter(api.base_url), "socket_path", None)
    return path if isinstance(path, str) else None


class _Follower:
    """Reads the log in one thread, and the output of the attached client in a second thread."""

    def __init__(
        self,
        client: DockerClient,
        container: str,
        log: ContainerLog,
        socket: str,
    ) -> None:
        self._client = client
        self._container = container
        self._log = log
        self._socket = socket
        self._open_lines = OpenLines(log.streams)
        self._logged: deque[tuple[int, bytes]] = deque()
        # Pairs of a stream and bytes; None marks the point where another client was attached.
        self._received: deque[tuple[int, bytes] | None] = deque()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._error: Exception | None = None
        self._has_ended = False
        self._relay: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def items(self) -> Iterator[str]:
        """Yield each line whole, or in parts if it was shown before its end."""
        for run in (self._read_log, self._read_pieces):
            threading.Thread(target=run, name=f"log-{self._container[:12]}", daemon=True).start()
        lines = self._open_lines
        while True:
            self._changed.wait(lines.seconds_to_wait())
            self._changed.clear()
            # Read the flag before the lines, so that no line from before the end is missed.
            has_ended = self._has_ended
            # Take the client's bytes first: the client receives text before the log has the line.
            while self._received:
                found = self._received.popleft()
                if found is None:
                    lines.attached()
                else:
                    lines.add(*found)
            while self._logged:
                yield from lines.take(*self._logged.popleft())
            if has_ended:
                yield from lines.end()
                if self._error is not None:
                    raise self._error
                return
            yield from lines.take_pieces()

    def close(self) -> None:
        """Detach the client; may be called more than once."""
        with self._lock:
            self._closed.set()
            process = self._relay
        if process is not None:
            process.kill()  # The process only reads output, so nothing is lost.

    def _read_log(self) -> None:
        try:
            for found in self._log.stream_lines():
                self._logged.append(found)
                self._changed.set()
                while len(self._logged) > _MOST_LINES and not self._closed.wait(_PAUSE):
                    pass
                if self._closed.is_set():
                    return
        except Exception as e:  # items() raises it in the consumer's thread
            self._error = e
        finally:
            self._has_ended = True
            self._changed.set()
            self.close()

    def _read_pieces(self) -> None:
        pause = _FIRST_RETRY
        while not self._closed.wait(pause):
            # Ignore errors, such as an engine that does not answer: _read_log() reports them.
            with contextlib.suppress(Exception):
                attrs = self._client.api.inspect_container(self._container)
                if attrs["State"]["Status"] in _ATTACHABLE and self._copy_output(
                    bool(attrs["Config"].get("Tty"))
                ):
                    pause = _FIRST_RETRY
            pause = min(2 * pause, _LONGEST_RETRY)

    def _copy_output(self, is_tty: bool) -> bool:
        """Attach a client and read from it to the end; return False if it cannot be attached."""
        params = "?stream=1&stdout=1&stderr=1"
        url = urlsplit(self._client.api._url("/containers/{0}/attach", self._container)).path
        command = [sys.executable, "-I", "-S", relay.__file__, self._socket, url + params]
        reader, writer = os.pipe()
        try:
            with self._lock:
                if self._closed.is_set():
                    return False
                self._relay = process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=writer,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        finally:
            os.close(writer)
        try:
            return self._take_output(reader, is_tty)
        finally:
            process.kill()
            process.wait()
            os.close(reader)

    def _take_output(self, fd: int, is_tty: bool) -> bool:
        if not os.read(fd, 1):
            return False
        self._received.append(None)
        chunks = iter(lambda: os.read(fd, _CHUNK), b"")
        for found in ((STDOUT, c) for c in chunks) if is_tty else split_frames(chunks):
            self._received.append(found)
            self._changed.set()
            while len(self._received) > _MOST_CHUNKS and not self._closed.wait(_PAUSE):
                pass
        return True
