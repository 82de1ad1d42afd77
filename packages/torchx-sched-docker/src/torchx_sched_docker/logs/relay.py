"""A process that attaches to a container and copies its output to a pipe.

The engine keeps at most 1 MB of output for an attached client, and then holds up the container
until the client reads. Ctrl-Z stops the follower of a log, and a stopped follower must not hold up
a job. So another process, in a session of its own, is the client. This process always reads. It
ends when the follower has ended, or when more than :data:`MOST_BYTES` wait for the follower. The
module imports only the standard library, because it runs as an isolated program:
``python -I -S relay.py SOCKET URL_PATH``.
"""

from __future__ import annotations

import os
import select
import socket
import sys

#: The largest number of bytes that may wait for the follower.
MOST_BYTES = 1 << 20
_CHUNK = 1 << 16
_LONGEST_HEAD = 1 << 16
_HEAD_END = b"\r\n\r\n"


def main(argv: list[str]) -> int:
    """Copy the output of a container to standard output; return 1 if the engine refuses.

    Args:
        argv: The path of the engine's socket, and the path of the request.
    """
    path, url = argv
    engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    engine.connect(path)
    head = f"POST {url} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    engine.sendall(head.encode())
    waiting = _read_head(engine)
    if waiting is None:
        return 1
    # The first byte tells the follower that the engine has attached this client.
    _copy(engine, 1, b"\n" + waiting)
    return 0


def _read_head(engine: socket.socket) -> bytes | None:
    """Read the head of the engine's response; return the bytes after it, or None after an error."""
    answer = b""
    while _HEAD_END not in answer:
        received = engine.recv(_CHUNK)
        answer += received
        if not received or len(answer) > _LONGEST_HEAD:
            return None
    status, _, _ = answer.partition(b"\r\n")
    if status.split(b" ")[1:2] not in ([b"101"], [b"200"]):
        return None
    return answer.partition(_HEAD_END)[2]


def _copy(engine: socket.socket, output: int, waiting: bytes) -> None:
    """Copy until the engine or the follower closes its side, or until too many bytes wait."""
    os.set_blocking(output, False)
    has_ended = False
    while waiting or not has_ended:
        poll = select.poll()
        if not has_ended:
            poll.register(engine, select.POLLIN)
        # Without POLLOUT, poll() reports only that the follower has closed the pipe.
        poll.register(output, select.POLLOUT if waiting else 0)
        events = dict(poll.poll())
        if engine.fileno() in events:
            received = engine.recv(_CHUNK)
            waiting += received
            has_ended = not received
        if len(waiting) > MOST_BYTES or events.get(output, 0) & (select.POLLERR | select.POLLHUP):
            return
        if events.get(output, 0) & select.POLLOUT:
            waiting = waiting[os.write(output, waiting[:_CHUNK]) :]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError:
        sys.exit(1)
