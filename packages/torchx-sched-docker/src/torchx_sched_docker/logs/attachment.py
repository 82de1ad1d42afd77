"""Follow the log of a container, including text whose newline is not written yet."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, cast
from urllib.parse import urlsplit

from docker.client import DockerClient

from torchx_sched_docker.logs import relay
from torchx_sched_docker.logs.container_log import STDOUT, ContainerLog, split_frames
from torchx_sched_docker.logs.open_lines import OpenLines

_CHUNK = 1 << 16
# How many lines and pieces of output may wait for the consumer before their readers pause.
_MOST_WAITING = 4096
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 2.0
# The kinds of items that the threads have read: a line of the log, output that the attached client
# has received, and the point where another client was attached.
_LINE, _PIECE, _ATTACHED = "line", "piece", "attached"
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
    socket = getattr(client.api.get_adapter(client.api.base_url), "socket_path", None)
    if not isinstance(socket, str):  # the client uses a network address
        yield from log.lines()
        return
    with contextlib.closing(_Follower(client, container, log, socket)) as follower:
        yield from follower.items()


class _Follower:
    """Reads the log in one thread, and the output of the attached client in a second thread."""

    def __init__(
        self, client: DockerClient, container: str, log: ContainerLog, socket: str
    ) -> None:
        self._client = client
        self._container = container
        self._log = log
        self._socket = socket
        # A kind of item, a stream and bytes; or the end of the log: its error, or None.
        self._found: queue.Queue[tuple[str, int, bytes] | Exception | None]
        self._found = queue.Queue(_MOST_WAITING)
        self._closed = threading.Event()
        self._relay: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def items(self) -> Iterator[str]:
        """Yield each line whole, or in parts if it was shown before its end."""
        for run in (self._read_log, self._read_pieces):
            threading.Thread(target=run, name=f"log-{self._container[:12]}", daemon=True).start()
        lines = OpenLines(self._log.streams)
        while True:
            try:
                found = self._found.get(timeout=lines.seconds_to_wait())
            except queue.Empty:
                yield from lines.take_pieces()
                continue
            if not isinstance(found, tuple):
                yield from lines.end()
                if found is not None:
                    raise found
                return
            kind, stream, data = found
            if kind == _LINE:
                yield from lines.take(stream, data)
            elif kind == _PIECE:
                lines.add(stream, data)
            else:
                lines.attached()
            yield from lines.take_pieces()

    def close(self) -> None:
        """Detach the client, and end the threads."""
        with self._lock:
            self._closed.set()
            process = self._relay
        if process is not None:
            process.kill()  # The process only reads output, so nothing is lost.
        with contextlib.suppress(queue.Empty):
            while True:  # A thread that waits for room continues, and ends.
                self._found.get_nowait()

    def _read_log(self) -> None:
        end: Exception | None = None
        try:
            for stream, line in self._log.stream_lines():
                self._found.put((_LINE, stream, line))
                if self._closed.is_set():
                    return
        except Exception as e:  # items() raises it in the consumer's thread
            end = e
        self._found.put(end)

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
        with self._lock:
            if self._closed.is_set():
                return False
            self._relay = process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        with process:  # At the end, this closes the pipe, which ends the process.
            output = cast("IO[bytes]", process.stdout)
            if not output.read(1):
                return False
            self._found.put((_ATTACHED, 0, b""))
            chunks = iter(lambda: output.read(_CHUNK), b"")
            for stream, data in ((STDOUT, c) for c in chunks) if is_tty else split_frames(chunks):
                self._found.put((_PIECE, stream, data))
                if self._closed.is_set():
                    break
        return True
