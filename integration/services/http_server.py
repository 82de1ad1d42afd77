"""A server of HTTP in a process of its own, on a free port of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from patience import wait_for


class HttpServer:
    """A running server.

    Another process may take the free port before the server does; then a second port is tried.

    Args:
        command: Returns the command that starts the server on a port.
        ready: The path of a URL; the server responds to this URL once it is ready.
        log: The file for the server's output.
        variables: The server's environment.

    Raises:
        AssertionError: The server does not start.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        ready: str,
        log: Path,
        variables: Mapping[str, str],
    ) -> None:
        self._ready, self._log = ready, log
        if not self._starts(command, variables) and "Address already in use" in self.log():
            self._starts(command, variables)
        assert self._process.poll() is None, f"the server has ended: {self.log()[-3000:]}"

    def _starts(
        self, command: Callable[[int], Sequence[str]], variables: Mapping[str, str]
    ) -> bool:
        """Start the server; return whether it runs when it is ready."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )
        try:
            wait_for(lambda: self._process.poll() is not None or self._answers(), self.log)
        except AssertionError:
            self.stop()
            raise
        return self._process.poll() is None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + self._ready, timeout=5):  # noqa: S310 - http
                return True
        except OSError as e:
            return isinstance(e, urllib.error.HTTPError)

    def log(self) -> str:
        """Return the output of the server."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """End the server and the processes that it has started, if it runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
