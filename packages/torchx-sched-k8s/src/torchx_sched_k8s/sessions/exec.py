"""Run commands in the container of a replica, through the subresource ``exec`` of its pod."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.names.ids import random_id
from torchx_kit.sessions.marks import MARK, signal_command
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    CORE,
    object_path,
)
from torchx_sched_k8s.sessions.channels import V4, V5, ChannelSocket
from torchx_specs.errors import BackendError, TorchXError, one_line
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.sessions import (
    ProgramNotFoundError,
    ReplicaNotRunningError,
    Session,
    TerminalSize,
)

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE = range(5)
_STREAMS = {_STDOUT: Stream.STDOUT, _STDERR: Stream.STDERR}
# Parts of messages, in lower case, for a missing program and for a container that does not run.
_NO_PROGRAM = ("no such file or directory", "executable file not found", "permission denied")
_NOT_RUNNING = (
    *("container not found", "pod does not exist", "not running", "notfound", "is terminated"),
    *("container is in container_exited state", "no running task found"),
)


class PodExec(Session):
    """A command in the container of a pod.

    The program ``env`` starts the command with a mark, an environment variable by which
    :meth:`send_signal` finds the command's processes. In a container without ``env``, the command
    has no mark, and :meth:`send_signal` only closes the connection.

    Args:
        cluster: The cluster.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container.
        command: The program and its arguments.
        tty: Size of the terminal that the command gets; None means pipes.
        stdin: Whether the command gets input.

    Raises:
        ReplicaNotRunningError: The container does not run. With version 5 of the protocol,
            :meth:`wait` raises this error: the API server accepts the connection before it asks
            the node (``StreamTranslatorHandler`` in apiserver/pkg/util/proxy of Kubernetes).
        ApiError: The cluster refuses the request.
        BackendError: The cluster does not answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        tty: TerminalSize | None,
        stdin: bool,
    ) -> None:
        self._cluster = cluster
        self._path = object_path(CORE, namespace, "pods", pod, "exec")
        self._container = container
        self._pod = pod
        self._command = list(command)
        self._tty = tty
        self._stdin = stdin
        self._mark = random_id(20)
        self._status: dict[str, Any] | None = None
        self._closed = False
        self._socket = self._connect(["env", f"{MARK}={self._mark}", *command], tty, stdin)

    def _connect(
        self, command: Sequence[str], tty: TerminalSize | None, stdin: bool
    ) -> ChannelSocket:
        query = [("command", word) for word in command]
        query += [
            ("container", self._container),
            ("stdin", str(stdin).lower()),
            ("stdout", "true"),
            ("stderr", str(tty is None).lower()),
            ("tty", str(tty is not None).lower()),
        ]
        action = f"run '{self._command[0]}' in {self._pod}"
        try:
            found = ChannelSocket(self._cluster, self._path, query, action, (V5, V4))
        except ApiError as e:
            if e.status == 404 or _says_not_running(e.message):
                raise ReplicaNotRunningError(f"{self._pod} does not run: {e.message}") from None
            raise
        if tty is not None:
            found.send(_RESIZE, _size(tty))
        return found

    def output(self) -> Iterator[tuple[Stream, bytes]]:
        started = False
        while True:
            try:
                message = self._socket.receive()
            except BackendError:
                # If the command ends while input is on its way, the API server resets the
                # connection.
                if self._status is None:
                    raise
                return
            if message is None:
                return
            channel, data = message
            if channel in _STREAMS and data:
                started = True
                yield _STREAMS[channel], data
            elif channel == _STATUS:
                self._status = _parse(data)
                problem = self._start_problem()
                if problem and not started and '"env"' in problem:
                    self._socket.close()
                    self._mark, self._status = "", None
                    self._socket = self._connect(self._command, self._tty, self._stdin)

    def write(self, data: bytes) -> None:
        if self._status is None:
            self._socket.send(_STDIN, data)

    def close_stdin(self) -> None:
        if self._tty is None and self._status is None and not self._socket.end(_STDIN):
            import logging

            logging.getLogger(__name__).warning(
                "the command does not see the end of its input: only Kubernetes 1.30 and later"
                " can send it"
            )

    def resize(self, size: TerminalSize) -> None:
        if self._tty is not None and self._status is None:
            self._socket.send(_RESIZE, _size(size))

    def send_signal(self, number: int) -> None:
        if not self._mark:
            self.close()
            return
        other = self._connect(signal_command(self._mark, number), None, False)
        while other.receive() is not None:
            pass
        other.close()

    def wait(self) -> int:
        status = self._status
        if status is None:
            raise BackendError(
                f"the connection to {self._pod} ended before '{self._command[0]}' did; the pod may"
                " have been deleted"
            )
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or ():
            text = str(cause.get("message"))
            if cause.get("reason") == "ExitCode" and text.isdigit():
                return int(text)
        problem = self._start_problem()
        if problem:
            raise ProgramNotFoundError(f"cannot run '{self._command[0]}' in {self._pod}: {problem}")
        message = one_line(status.get("message") or "")
        if _says_not_running(message):
            raise ReplicaNotRunningError(f"{self._pod} does not run: {message}")
        raise BackendError(f"cannot run '{self._command[0]}' in {self._pod}: {message}")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._status is None and self._mark:
            # The container runtime does not end a command when the connection ends.
            try:
                self.send_signal(signal.SIGTERM if self._tty is None else signal.SIGHUP)
            except TorchXError:
                pass  # the pod may be deleted, or the cluster unreachable
        self._socket.close()

    def _start_problem(self) -> str:
        """Return the runtime's message if the program could not be started; otherwise empty."""
        status = self._status or {}
        message = one_line(status.get("message") or "")
        is_exit = status.get("reason") == "NonZeroExitCode"
        found = not is_exit and any(text in message.lower() for text in _NO_PROGRAM)
        return message if found else ""


def _says_not_running(message: str) -> bool:
    """Return whether a message says that the container or its pod does not run."""
    return any(text in message.lower() for text in _NOT_RUNNING)


def _size(size: TerminalSize) -> bytes:
    return json.dumps({"Width": size.columns, "Height": size.rows}).encode()


def _parse(data: bytes) -> dict[str, Any]:
    try:
        status = json.loads(data)
    except ValueError:
        return {"status": "Failure", "message": data.decode("utf-8", "replace")}
    return status if isinstance(status, dict) else {"status": "Failure", "message": str(status)}
