"""Ports of replicas, and signals to commands in replicas.

A connection to a port is direct, or a program in the replica connects to the port.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from itertools import chain

from torchx_specs.errors import BackendError, one_line
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.sessions import NotListeningError, Session

#: The type of a connection, for modules that do not import the module socket themselves.
Connection = socket.socket

_BLOCK = 1 << 16
_CONNECT_SECONDS = 5.0

_PYTHON = """\
import os, socket, sys, threading
s = socket.create_connection(("localhost", int(sys.argv[1])))
def write(data):
    while data:
        data = data[os.write(1, data):]
def send():
    while True:
        data = os.read(0, 65536)
        if not data:
            break
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
write(b"+")
t = threading.Thread(target=send)
t.daemon = True
t.start()
while True:
    data = s.recv(65536)
    if not data:
        break
    write(data)
os._exit(0)
"""

# The program writes "+" as its first byte once it is connected to the port.
_SHELL = """\
for python in python3 python; do
    command -v "$python" > /dev/null 2>&1 && exec "$python" -c "$2" "$1"
done
if command -v bash > /dev/null 2>&1; then
    exec bash -c '{ exec 3<> "/dev/tcp/127.0.0.1/$1"; } 2> /dev/null \\
            || exec 3<> "/dev/tcp/::1/$1" || exit 1
        exec 4<&0; printf +; cat <&4 >&3 & cat <&3; kill $! 2> /dev/null' bash "$1"
fi
echo "the replica has neither python nor bash, one of which must connect to the port" >&2
exit 126
"""


def relay_command(port: int) -> list[str]:
    """Return a command that connects its standard input and output to a port of the same machine.

    The command needs ``sh``, and ``python3`` or ``bash``. It writes a ``+`` once it is connected.
    With ``bash``, the end of the input is not passed on; the server on the port notices it only
    when the connection is closed.
    """
    return ["sh", "-c", _SHELL, "sh", str(port), _PYTHON]


def connect(address: tuple[str, int], timeout: float = _CONNECT_SECONDS) -> socket.socket | None:
    """Return a connection to an address, or None if the address cannot be reached."""
    try:
        found = socket.create_connection(address, timeout)
    except OSError:
        return None
    found.settimeout(None)
    return found


def connect_loopback(port: int, replica: str) -> socket.socket:
    """Return a connection to a port of this machine.

    Args:
        port: The port.
        replica: Name of the replica, for the error message.

    Raises:
        NotListeningError: Nothing listens on the port.
    """
    found = connect(("localhost", port))
    if found is None:
        raise refused(replica, port)
    return found


def refused(replica: str, port: int, reason: str = "") -> NotListeningError:
    """Return the error for a port on which nothing listens."""
    return NotListeningError(
        f"nothing accepts connections on port {port} of {replica}{f': {reason}' if reason else ''}"
    )


def relay(session: Session, replica: str, port: int) -> socket.socket:
    """Return a socket that is connected to a port by a session of :func:`relay_command`.

    Args:
        session: The session, which ends when the socket is closed.
        replica: Name of the replica, for the error message.
        port: The port, for the error message.

    Raises:
        NotListeningError: Nothing listens on the port, or the replica has no program to connect
            with.
    """
    chunks = session.output()
    errors = b""
    for stream, data in chunks:
        if stream == Stream.STDERR:
            errors += data
            continue
        rest = (data for stream, data in chunks if stream != Stream.STDERR)
        return bridge(chain([data[1:]], rest), session.write, session.close_stdin, session.close)
    code = session.wait()
    session.close()
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    raise refused(replica, port, one_line(lines[-1]) if lines else f"exit code {code}")


def bridge(
    chunks: Iterable[bytes],
    write: Callable[[bytes], object],
    end: Callable[[], object],
    close: Callable[[], object],
) -> socket.socket:
    """Return a socket that is connected to a stream of bytes, such as a session's.

    Args:
        chunks: The bytes that the connection receives, read in a thread.
        write: Sends bytes; called in another thread.
        end: Called after the last bytes were sent; the connection still receives.
        close: Closes the connection; called after the last bytes were received.
    """
    ours, theirs = socket.socketpair()
    threading.Thread(target=_send, args=(ours, write, end), daemon=True).start()
    threading.Thread(target=_receive, args=(ours, chunks, close), daemon=True).start()
    return theirs


def _send(ours: socket.socket, write: Callable[[bytes], object], end: Callable[[], object]) -> None:
    with contextlib.suppress(OSError, BackendError):
        while data := ours.recv(_BLOCK):
            write(data)
        end()


def _receive(ours: socket.socket, chunks: Iterable[bytes], close: Callable[[], object]) -> None:
    with contextlib.suppress(OSError, BackendError):
        for data in chunks:
            ours.sendall(data)
    with contextlib.suppress(OSError, BackendError):
        close()
    with contextlib.suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
    ours.close()


#: The variable that marks the processes of a session.
MARK = "TORCHX_SESSION"

# $1 is the signal's name, $2 the variable with its value. Child processes of the command inherit
# the variable, so they get the signal, too.
_SIGNAL = """\
for folder in /proc/[0-9]*; do
    if tr '\\000' '\\n' < "$folder/environ" 2> /dev/null | grep -qxF -e "$2"; then
        kill -s "$1" "${folder#/proc/}" 2> /dev/null
    fi
done
exit 0
"""


def signal_command(value: str, number: int) -> list[str]:
    """Return a command that sends a signal to the processes of a session.

    The ids of processes in a container are unknown on this machine. So the processes of a session
    have an environment variable with a random value, by which the command finds them.

    Args:
        value: Value of the variable :data:`MARK` in the processes of the session.
        number: Number of the signal.
    """
    name = signal.Signals(number).name.removeprefix("SIG")
    return ["sh", "-c", _SIGNAL, "sh", name, f"{MARK}={value}"]
