"""A server for tests, which passes each connection to a function."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class TcpServer:
    """Accepts connections on a free port of this machine, each in a thread of its own.

    Args:
        handle: Called with each connection, which is closed afterwards. An OSError ends it.
    """

    def __init__(self, handle: Callable[[socket.socket], None]) -> None:
        self._handle = handle
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.name = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Wake the thread first: it could otherwise accept on the descriptor's number, which the
        # next server of this process may have by then.
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._handle(client)
