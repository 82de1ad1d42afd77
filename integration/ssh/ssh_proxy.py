"""A TCP proxy that delays bytes and cuts connections."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable


class Proxy:
    """Passes connections on to a port of this machine.

    Args:
        port: The port.
        delay: How long each byte takes in each direction, in seconds: half of a round trip.
        block: The most bytes that are passed on at once.

    Attributes:
        port: The port of the proxy.
        passed: How many blocks were passed on.
        is_open: Whether new connections are accepted; if not, they are closed at once.
    """

    def __init__(self, port: int, delay: float = 0.0, block: int = 1 << 16) -> None:
        self._target = port
        self._delay = delay
        self._block = block
        self.passed = 0
        self._limit = 0
        self._action: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def after(self, blocks: int, action: Callable[[], object]) -> None:
        """Call a function once, before the block after this number of blocks is passed on."""
        with self._lock:
            self._limit, self._action = self.passed + blocks, action

    def is_waiting(self) -> bool:
        """Return whether the function of :meth:`after` was not called yet."""
        return self._action is not None

    def _count(self) -> None:
        with self._lock:
            self.passed += 1
            if self._action is None or self.passed <= self._limit:
                return
            action, self._action = self._action, None
        action()

    def cut(self) -> None:
        """Cut all connections."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def silence(self) -> None:
        """Pass on nothing more of all connections, and leave them open: the laptop is asleep."""
        self._silent |= set(self._sockets)

    def close(self) -> None:
        """End the proxy."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            if not self.is_open:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                threading.Thread(target=self._read, args=(source, waiting), daemon=True).start()
                threading.Thread(target=self._write, args=(target, waiting), daemon=True).start()

    def _read(self, source: socket.socket, waiting: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(self._block)
                self._count()
            except OSError:
                data = b""
            waiting.put((time.monotonic() + self._delay, data))

    def _write(
        self, target: socket.socket, waiting: queue.SimpleQueue[tuple[float, bytes]]
    ) -> None:
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if target in self._silent:
                continue
            try:
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            except OSError:
                return
