"""Connect to ports of a replica's pod, through the pod's subresource ``portforward``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from torchx_kit.sessions.ports import bridge, refused
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    CORE,
    object_path,
)
from torchx_sched_k8s.sessions.channels import V4, ChannelSocket
from torchx_specs.errors import BackendError, one_line
from torchx_specs.schedulers.sessions import ReplicaNotRunningError

if TYPE_CHECKING:
    from socket import socket

    from torchx_sched_k8s.cluster.client import Cluster

_DATA, _ERROR = range(2)
# Parts of the node's messages, in lower case, for a pod that does not run.
_NOT_RUNNING = ("not running", "pod not found", "pod does not exist")
# The protocol reports a refused connection, but not an accepted one. If no report has come after
# this many seconds, the connection counts as accepted.
_REFUSAL_SECONDS = 0.5
# The protocol cannot end only one direction. When this side has sent its last data, the connection
# therefore stays open until no data has arrived for this many seconds.
_IDLE_SECONDS = 30.0


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
    try:
        connection = ChannelSocket(cluster, path, [("ports", str(port))], action, (V4,))
    except ApiError as e:
        if e.status == 404 or any(text in e.message.lower() for text in _NOT_RUNNING):
            raise ReplicaNotRunningError(f"{replica} does not run: {e.message}") from None
        raise
    received: SimpleQueue[bytes | BackendError | None] = SimpleQueue()
    reader = threading.Thread(target=_receive, args=(connection, received), daemon=True)
    reader.start()
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
