"""A process that attaches to a container and copies its output to a pipe.

The engine keeps at most 1 MB of output for an attached client, and then holds up the container
until the client reads. Ctrl-Z stops the follower of a log, and a stopped follower must not hold up
a job. So another process, in a session of its own, is the client. This process always reads. It
ends when the follower has ended, or when the pipe to the follower is full. The module imports only
the standard library, because it runs as an isolated program:
``python -I -S relay.py SOCKET URL_PATH``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import sys

#: The size of the pipe, in bytes, where the system allows it.
MOST_BYTES = 1 << 20
_CHUNK = 1 << 16
_LONGEST_HEAD = 1 << 16
_HEAD_END = b"\r\n\r\n"
_OUTPUT = 1


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
    received = _read_head(engine)
    if received is None:
        return 1
    # A full pipe is an error only if not even a part of the data fits; it always means the end.
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        # The first byte tells the follower that the engine has attached this client.
        _copy(engine, b"\n" + received)
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


def _copy(engine: socket.socket, received: bytes) -> None:
    """Copy until the engine or the follower closes its side, or until the pipe is full.

    Args:
        engine: The connection to the engine.
        received: The bytes to write first.

    Raises:
        BlockingIOError: The pipe is full.
        BrokenPipeError: The follower has closed its side.
    """
    os.set_blocking(_OUTPUT, False)
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or the user has many pipes
        fcntl.fcntl(_OUTPUT, fcntl.F_SETPIPE_SZ, MOST_BYTES)
    poll = select.poll()
    poll.register(engine, select.POLLIN)
    poll.register(_OUTPUT, 0)  # without a requested event: only that the follower has closed it
    while received and os.write(_OUTPUT, received) == len(received):
        if any(fd == _OUTPUT for fd, _ in poll.poll()):
            return
        received = engine.recv(_CHUNK)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError:
        sys.exit(1)
