"""Commands in the pods of an app, and connections to their ports.

Both are WebSocket connections to the API server, with numbered channels: every message starts with
the number of its channel
(https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go).
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from socket import socket
from typing import Any

import websocket
from kubernetes.stream import ws_client

from torchx_kit.names.ids import random_id
from torchx_kit.sessions.ports import MARK, bridge, refused, signal_command
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import refusal
from torchx_sched_k8s.cluster.labels import CORE, object_path
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_sched_k8s.status.pod_states import Pod
from torchx_specs.errors import BackendError, TorchXError, one_line
from torchx_specs.model.status import AppState
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.sessions import (
    ProgramNotFoundError,
    ReplicaNotRunningError,
    Session,
    Sessions,
    TerminalSize,
)

#: Version 5 of the protocol can end a channel. Kubernetes has this version since release 1.30.
V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
# A message of this channel contains the number of a channel that has ended.
_CLOSE = 255
# The largest message to send, in bytes. The API server accepts larger ones, but small messages use
# less memory on both sides.
_BLOCK = 1 << 15

_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE = range(5)
_STREAMS = {_STDOUT: Stream.STDOUT, _STDERR: Stream.STDERR}
# Parts of messages, in lower case, for a missing program, and for a pod or a container that does
# not run.
_NO_PROGRAM = ("no such file or directory", "executable file not found", "permission denied")
_NOT_RUNNING = (
    *("container not found", "pod not found", "pod does not exist", "not running", "notfound"),
    *("is terminated", "container is in container_exited state", "no running task found"),
)

_DATA, _ERROR = range(2)
# The protocol reports a refused connection, but not an accepted one. If no report has come after
# this many seconds, the connection counts as accepted.
_REFUSAL_SECONDS = 0.5
# The protocol cannot end only one direction. When this side has sent its last data, the connection
# therefore stays open until no data has arrived for this many seconds.
_IDLE_SECONDS = 30.0


class KubernetesSessions(Sessions[KubernetesScheduler]):
    """Accesses the running pods of apps.

    Every method may raise an ``UnknownAppException`` or an ``UnknownReplicaError``.
    """

    def open(
        self,
        app_id: str,
        role: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command in the container of a replica; see :meth:`Sessions.open`."""
        cluster, namespace, pod = self._running_pod(app_id, role, k)
        return PodExec(cluster, namespace, pod.name, pod.container, command, tty, stdin)

    def connect(self, app_id: str, role: str, k: int, port: int) -> socket:
        """Return a socket that is connected to a port of a pod; see :meth:`Sessions.connect`."""
        cluster, namespace, pod = self._running_pod(app_id, role, k)
        known = self.scheduler._open_ports
        return open_port(cluster, namespace, pod.name, f"{role}/{k}", port, known)

    def _running_pod(self, app_id: str, role: str, k: int) -> tuple[Cluster, str, Pod]:
        index = self.scheduler._role_of(app_id, role, k).index
        pods, more = self.scheduler._find_pods(app_id, index, k)
        pod = pods[-1] if pods else None
        if pod is not None and pod.state == AppState.RUNNING and not pod.leaving:
            return *self.scheduler._locate(app_id)[:2], pod
        state = f" ({pod.state.name}{f': {pod.reason}' if pod.reason else ''})" if pod else ""
        verb = "has not started" if more else "has ended"
        if more and pod is not None and pod.state == AppState.FAILED:
            verb = "waits for its next attempt"
        raise ReplicaNotRunningError(f"{role}/{k} of app {app_id} {verb}{state}")


class ChannelSocket:
    """A connection with channels.

    One thread may receive while others send.

    Args:
        cluster: The cluster.
        path: API path of the subresource, such as ``exec`` of a pod.
        query: Query parameters; a name may be repeated.
        action: The action in error messages, as in "cannot <action>".
        whose: The pod or replica, for error messages.
        protocols: The acceptable versions of the protocol, the best one first.

    Raises:
        ReplicaNotRunningError: The pod or its container does not run.
        ApiError: The cluster refuses the request.
        BackendError: The cluster does not answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        query: Sequence[tuple[str, str]],
        action: str,
        whose: str,
        protocols: Sequence[str],
    ) -> None:
        library: Any = ws_client

        self._cluster = cluster
        self._action = action
        self._lock = threading.Lock()
        self._closed = False
        client = cluster.client
        url = library.get_websocket_url(str(client.configuration.host).rstrip("/") + path, query)
        headers = {"sec-websocket-protocol": ",".join(protocols)}
        for auth in client.configuration.auth_settings().values():
            if auth.get("in") == "header" and auth.get("value"):
                headers[auth["key"]] = auth["value"]
        try:
            self._socket: Any = library.create_websocket(client.configuration, url, headers)
        except websocket.WebSocketBadStatusException as e:
            body = getattr(e, "resp_body", None) or b""
            error = refusal(action, e.status_code, body, cluster.credentials())
            if error.status == 404 or _says_not_running(error.message):
                raise ReplicaNotRunningError(f"{whose} does not run: {error.message}") from None
            raise error from None
        except (websocket.WebSocketException, OSError) as e:
            raise cluster.lost_connection(action, e) from None
        #: The version of the protocol that the cluster has chosen.
        self.protocol = str(
            (self._socket.getheaders() or {}).get("sec-websocket-protocol") or protocols[-1]
        )

    def send(self, channel: int, data: bytes) -> None:
        """Send bytes to a channel; after :meth:`close`, drop them.

        Raises:
            BackendError: The connection broke.
        """
        view = memoryview(data)
        for start in range(0, len(view), _BLOCK):
            self._send(bytes([channel]) + view[start : start + _BLOCK])

    def end(self, channel: int) -> bool:
        """End a channel; return False if the chosen version of the protocol does not support it."""
        if self.protocol != V5:
            return False
        self._send(bytes([_CLOSE, channel]))
        return True

    def receive(self) -> tuple[int, bytes] | None:
        """Return the channel and the data of the next message; None at the connection's end.

        Raises:
            BackendError: The connection broke.
        """
        while True:
            try:
                code, data = self._socket.recv_data(control_frame=False)
            except websocket.WebSocketConnectionClosedException:
                return None
            except (websocket.WebSocketException, OSError, ValueError) as e:
                if self._closed:
                    return None
                raise self._cluster.lost_connection(self._action, e) from None
            if code == websocket.ABNF.OPCODE_CLOSE:
                return None
            if data:
                return data[0], data[1:]

    def close(self) -> None:
        """Close the connection; may be called more than once."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Exception):  # the connection may be broken in any way
            self._socket.close(timeout=1)
        with contextlib.suppress(Exception):
            # The library's `close` keeps the socket open if the cluster has ended the connection.
            self._socket.shutdown()

    def _send(self, message: bytes) -> None:
        try:
            with self._lock:
                self._socket.send_binary(message)
        except (websocket.WebSocketException, OSError, ValueError) as e:
            if not self._closed:
                raise BackendError(f"cannot {self._action}: {one_line(e)}") from None


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
        found = ChannelSocket(self._cluster, self._path, query, action, self._pod, (V5, V4))
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
                self._status = json.loads(data)
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
        if problem := self._start_problem():
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


def open_port(
    cluster: Cluster, namespace: str, pod: str, replica: str, port: int, known: set[tuple[str, int]]
) -> socket:
    """Return a socket that is connected to a port of a pod.

    Args:
        cluster: The cluster.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        replica: The replica, for error messages.
        port: The port.
        known: The pods and ports of earlier connections that were not refused; changed in place. A
            connection to one of these is returned without waiting for a refusal.

    Raises:
        NotListeningError: Nothing listens on the port.
        ReplicaNotRunningError: The pod does not run.
        BackendError: The cluster does not answer, or refuses the request.
    """
    path = object_path(CORE, namespace, "pods", pod, "portforward")
    action = f"connect to port {port} of {replica}"
    connection = ChannelSocket(cluster, path, [("ports", str(port))], action, replica, (V4,))
    received: SimpleQueue[bytes | BackendError | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    first: bytes | BackendError | None = b""
    try:
        first = received.get(timeout=0.0 if (pod, port) in known else _REFUSAL_SECONDS)
    except Empty:
        pass
    if isinstance(first, BackendError):
        connection.close()
        raise refused(replica, port, one_line(first))
    known.add((pod, port))

    def chunks() -> Iterator[bytes]:
        data: bytes | BackendError | None = first
        while isinstance(data, bytes):
            if data:
                yield data
            try:
                data = received.get(timeout=_IDLE_SECONDS)
            except Empty:
                data = None if ended.is_set() else b""

    ended = threading.Event()
    return bridge(chunks(), lambda data: connection.send(_DATA, data), ended.set, connection.close)


def _receive(connection: ChannelSocket, received: SimpleQueue[bytes | BackendError | None]) -> None:
    """Copy the data of a connection to a queue; put None or an error into the queue at the end."""
    started: set[int] = set()
    try:
        while (message := connection.receive()) is not None:
            channel, data = message
            if channel not in started:
                started.add(channel)  # the first message of a channel is the port's number
            elif channel == _ERROR:
                received.put(BackendError(data.decode("utf-8", "replace")))
                return
            elif channel == _DATA:
                received.put(data)
    except BackendError as e:
        received.put(e)
        return
    received.put(None)
