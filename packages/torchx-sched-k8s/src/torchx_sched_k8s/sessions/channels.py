"""WebSocket connections to the API server, with numbered channels.

Every message starts with the number of its channel
(https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import refusal
from torchx_specs.errors import BackendError, one_line

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: Version 5 of the protocol can end a channel. Kubernetes has this version since release 1.30.
V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
# A message of this channel contains the number of a channel that has ended.
_CLOSE = 255
# The largest message to send, in bytes. The API server accepts larger ones, but small messages use
# less memory on both sides.
_BLOCK = 1 << 15


class ChannelSocket:
    """A connection with channels.

    One thread may receive while others send.

    Args:
        cluster: The cluster.
        path: API path of the subresource, such as ``exec`` of a pod.
        query: Query parameters; a name may be repeated.
        action: The action in error messages, as in "cannot <action>".
        protocols: The acceptable versions of the protocol, the best one first.

    Raises:
        ApiError: The cluster refuses the request.
        BackendError: The cluster does not answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        query: Sequence[tuple[str, str]],
        action: str,
        protocols: Sequence[str],
    ) -> None:
        import websocket
        from kubernetes.stream import ws_client

        library: Any = ws_client

        self._websocket = websocket
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
            if isinstance(body, str):
                body = body.encode()
            raise refusal(action, e.status_code, body, cluster.credentials()) from None
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
            except self._websocket.WebSocketConnectionClosedException:
                return None
            except (self._websocket.WebSocketException, OSError, ValueError) as e:
                if self._closed:
                    return None
                raise self._cluster.lost_connection(self._action, e) from None
            if code == self._websocket.ABNF.OPCODE_CLOSE:
                return None
            if isinstance(data, str):
                data = data.encode()
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
        except (self._websocket.WebSocketException, OSError, ValueError) as e:
            if not self._closed:
                raise BackendError(f"cannot {self._action}: {one_line(e)}") from None
