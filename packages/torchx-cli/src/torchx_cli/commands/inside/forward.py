"""The command ``torchx forward``."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.options import Command
from torchx_cli.commands.inside.targets import REPLICA, Target, find_target
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import RequestError, TorchXError, one_line
from torchx_specs.schedulers.sessions import NotListeningError, ReplicaNotRunningError

if TYPE_CHECKING:
    from torchx_runner import Runner

logger = logging.getLogger(__name__)

_BLOCK = 1 << 16
_LARGEST_PORT = 65535
# How often to check whether the app has ended, in seconds.
_CHECK_SECONDS = 15.0


def _ports(text: str) -> tuple[int, int]:
    """Return a port of this machine (0 means any free port), and a port of the replica."""
    local, colon, remote = text.partition(":")
    numbers = [local or "0", remote] if colon else [local, local]
    if all(number.isascii() and number.isdigit() and len(number) <= 5 for number in numbers):
        first, second = map(int, numbers)
        if first <= _LARGEST_PORT and 0 < second <= _LARGEST_PORT:
            return first, second
    raise click.BadParameter(f"'{text:.40}' is not PORT or LOCAL:REMOTE, such as 8888 or 0:8888")


@click.command("forward", cls=Command)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on this address of this machine.",
)
@click.argument("replica", metavar=REPLICA)
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True, type=_ports)
def command(replica: str, ports: tuple[tuple[int, int], ...], address: str) -> None:
    """Forward ports of this machine to ports of a replica, until Ctrl-C.

    \b
    torchx forward @1 8888               127.0.0.1:8888 to port 8888
    torchx forward @1/trainer/0 9000:6006 0:8080

    The local port 0 means a free port. A line for each port shows the address to open.
    """
    with open_runner() as runner, contextlib.ExitStack() as stack:
        target = find_target(runner, replica)
        listeners = [stack.enter_context(_listen(address, local)) for local, _ in ports]
        forwarding = _Forwarding(runner, target)
        forwarding.check(ports[0][1])
        for listener, (_, remote) in zip(listeners, ports, strict=True):
            host, number = listener.getsockname()[:2]
            print(f"{host}:{number} -> {target}:{remote}", flush=True)
            forwarding.start(listener, remote)
        forwarding.wait()


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as e:
        reason = str(e.strerror or e).partition(" (")[0]  # without the address again
        raise RequestError(
            f"cannot listen on {address}:{port}: {reason}; choose another local port, or 0"
            " for a free one"
        ) from None


class _Forwarding:
    """Accepts connections in threads, and connects each with a port of the replica."""

    def __init__(self, runner: Runner, target: Target) -> None:
        self._runner = runner
        self._target = target
        self._ended = threading.Event()
        self._error: TorchXError | None = None

    def check(self, port: int) -> None:
        """Connect once to a port of the replica; only log a warning if nothing listens yet.

        Raises:
            NotSupportedError: The scheduler forwards no ports.
            ReplicaNotRunningError: The replica does not run.
        """
        try:
            self._runner.open_port(*self._target, port).close()
        except NotListeningError as e:
            logger.warning("%s (yet)", e)

    def start(self, listener: socket.socket, port: int) -> None:
        threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def wait(self) -> None:
        """Block until the app has ended, or a connection fails because the replica has ended.

        Raises:
            ReplicaNotRunningError: The replica has ended.
            TorchXError: The app's status cannot be queried.
        """
        while not self._ended.wait(_CHECK_SECONDS):
            status = self._runner.status(self._target.handle)
            if status is None or status.is_terminal():
                raise ReplicaNotRunningError(f"{self._target} has ended")
        if self._error is not None:
            raise self._error

    def _accept(self, listener: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._connect, args=(client, port), daemon=True).start()

    def _connect(self, client: socket.socket, port: int) -> None:
        with client:
            try:
                remote = self._runner.open_port(*self._target, port)
            except ReplicaNotRunningError as e:
                self._error = e
                self._ended.set()
                return
            except TorchXError as e:
                logger.warning("%s", one_line(e))
                return
            with remote:
                back = threading.Thread(target=_copy, args=(remote, client), daemon=True)
                back.start()
                _copy(client, remote)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes from ``source`` to ``target`` until ``source`` ends, and close that direction."""
    with contextlib.suppress(OSError):  # one of the connections was reset
        while data := source.recv(_BLOCK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
