"""The server's end of a WebSocket (RFC 6455) with numbered channels."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from typing import IO

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
CLOSE_CHANNEL = 255

_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10


def accept_key(key: str) -> str:
    """Return the value of ``Sec-WebSocket-Accept`` for a client's ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()  # noqa: S324


class ServerSocket:
    """A WebSocket connection after the handshake.

    Args:
        reader: Reads from the connection.
        connection: The connection.
        protocol: The version of the protocol that server and client have agreed on.
    """

    def __init__(self, reader: IO[bytes], connection: socket.socket, protocol: str) -> None:
        self._reader = reader
        self._connection = connection
        self.protocol = protocol
        self._lock = threading.Lock()

    def send(self, channel: int, data: bytes) -> None:
        """Send a message to a channel."""
        self._frame(_BINARY, bytes([channel]) + data)

    def close(self) -> None:
        """Send the frame that closes the connection; ignore a broken connection."""
        try:
            self._frame(_CLOSE, struct.pack("!H", 1000))
        except OSError:
            pass

    def receive(self) -> tuple[int, bytes] | None:
        """Return the channel and the data of the next message; None if the connection has ended."""
        message = b""
        while True:
            head = self._reader.read(2)
            if len(head) < 2:
                return None
            final, code, size = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x7F
            assert head[1] & 0x80, "a client has to mask its frames"
            if size == 126:
                (size,) = struct.unpack("!H", self._reader.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._reader.read(8))
            mask = self._reader.read(4)
            data = self._reader.read(size)
            if len(data) < size:
                return None
            repeated = (mask * (size // 4 + 1))[:size]
            data = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(
                size, "big"
            )
            if code == _CLOSE:
                return None
            if code == _PING:
                self._frame(_PONG, data)
            elif code != _PONG:
                message += data
                if final:
                    return (message[0], message[1:]) if message else (0, b"")

    def _frame(self, code: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes([0x80 | code, size])
        elif size < 1 << 16:
            head = bytes([0x80 | code, 126]) + struct.pack("!H", size)
        else:
            head = bytes([0x80 | code, 127]) + struct.pack("!Q", size)
        with self._lock:
            self._connection.sendall(head + data)
