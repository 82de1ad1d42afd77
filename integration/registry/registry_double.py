"""A proxy that forwards requests to a real registry and injects failures."""

from __future__ import annotations

import socket
from collections.abc import Callable

from tcp_server import TcpServer


class RegistryDouble(TcpServer):
    """Forwards requests to a registry, except those for which a script returns a response.

    Args:
        target: The name of the registry, ``HOST:PORT``.
        script: Called with the method and the path of each request. Returns the bytes of the
            response, ``b""`` to close the connection in the middle of the request, or None to
            forward the request.
    """

    def __init__(self, target: str, script: Callable[[str, str], bytes | None]) -> None:
        host, _, port = target.partition(":")
        self._target = (host, int(port))
        self._script = script
        super().__init__(self._respond)

    def _respond(self, client: socket.socket) -> None:
        reader = client.makefile("rb")
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = reader.readline()
                if not line or (not head and not line[:1].isalpha()):
                    return
                head += line
            method, path = head.split(b" ")[:2]
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answer = self._script(method.decode(), path.decode())
            if answer == b"":
                reader.read(length // 2)
                return
            body = reader.read(length)
            if answer is not None:
                client.sendall(answer)
                return
            with socket.create_connection(self._target) as server:
                server.sendall(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                server.sendall(body)
                while data := server.recv(1 << 16):
                    client.sendall(data)
            return


def answer(status: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Length: 0", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
