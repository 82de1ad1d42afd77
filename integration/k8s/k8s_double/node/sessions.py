"""The subresources ``exec`` and ``portforward`` of a pod, as a kubelet serves them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from typing import TYPE_CHECKING, Any

from k8s_double.errors import ApiError, bad_request
from k8s_double.server.websocket import CLOSE_CHANNEL, V5, ServerSocket
from k8s_double.store import Object

if TYPE_CHECKING:
    from k8s_double.node.kubelet import Kubelet
    from k8s_double.node.pod_worker import Container, Worker

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
_BLOCK = 1 << 15
_OCI = (
    "error executing command in container: failed to exec in container: failed to start exec:"
    " OCI runtime exec failed: exec failed: unable to start container process: exec:"
)


def container_of(
    kubelet: Kubelet, pod: Object, name: str
) -> tuple[Worker | None, Container | None]:
    """Return a pod's worker and the container for a session, as far as the node has them.

    Raises:
        ApiError: 400 if the pod has no node or no such container. As on a cluster, the phase of the
            pod does not matter: kubectl checks it, and the API server does not.
    """
    pod_name = pod["metadata"]["name"]
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {pod_name} does not have a host assigned")
    names = [c["name"] for c in pod["spec"]["containers"]]
    name = name or names[0]
    if name not in names:
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    worker = kubelet.workers.get(pod["metadata"]["uid"])
    return worker, worker.containers.get(name) if worker else None


def check_runs(kind: str, pod: Object, container: Container | None) -> None:
    """Refuse a session in a container that does not run, as the kubelet does.

    Raises:
        ApiError: 500, with the text of ``GetExec`` or ``GetPortForward`` in
            pkg/kubelet/kubelet_pods.go of Kubernetes.
    """
    metadata = pod["metadata"]
    if kind == "exec" and (container is None or not _runs(container)):
        name = container.name if container else ""
        text = f'unable to upgrade connection: container not found ("{name}")'
        raise ApiError(500, "InternalError", f"Internal error occurred: {text}")
    if kind == "portforward" and pod["status"].get("phase") in ("Succeeded", "Failed"):
        text = f'pod not found ("{metadata["name"]}_{metadata["namespace"]}")'
        raise ApiError(500, "InternalError", text)


def _runs(container: Container) -> bool:
    return container.process is not None and container.process.poll() is None


class Exec:
    """A command in a container.

    Args:
        worker: The worker of the pod.
        container: The container.
        query: The query parameters; each name has the list of its values.
        channels: The connection to the client.
    """

    def __init__(
        self,
        worker: Worker,
        container: Container,
        query: dict[str, list[str]],
        channels: ServerSocket,
    ) -> None:
        self._container = container
        self._channels = channels
        self._command = query.get("command") or []
        self._has_input = query.get("stdin") == ["true"]
        self._tty = query.get("tty") == ["true"]
        self._env = worker._environment(container)
        self._folder = worker._working_folder(container)
        self._terminal = -1

    def serve(self) -> None:
        """Run the command to its end, or until its container ends."""
        try:
            process = self._start()
        except OSError as e:
            text = f'{_OCI} "{self._command[0]}": {(e.strerror or str(e)).lower()}: unknown'
            self._end(
                {"status": "Failure", "reason": "InternalError", "message": text, "code": 500}
            )
            return
        threading.Thread(target=self._read_input, args=(process,), daemon=True).start()
        self._copy_output(process)
        code = process.wait()
        code = code if code >= 0 else 128 - code
        if code == 0:
            self._end({"status": "Success"})
            return
        cause = {"reason": "ExitCode", "message": str(code)}
        self._end(
            {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code",
                "details": {"causes": [cause]},
            }
        )

    def _start(self) -> subprocess.Popen[bytes]:
        streams: dict[str, Any] = {
            "stdin": subprocess.PIPE if self._has_input else subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        other = -1
        if self._tty:
            self._terminal, other = os.openpty()
            streams = dict.fromkeys(streams, other)
        try:
            return subprocess.Popen(
                self._command,
                env=self._env,
                cwd=self._folder,
                bufsize=0,
                start_new_session=True,
                preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if self._tty else None,
                **streams,
            )
        finally:
            if other >= 0:
                os.close(other)

    def _read_input(self, process: subprocess.Popen[bytes]) -> None:
        # When the connection ends, the command continues, as on a cluster.
        with contextlib.suppress(OSError, ValueError):
            while (message := self._channels.receive()) is not None:
                channel, data = message
                if channel == STDIN and data:
                    self._write(process, data)
                elif channel == RESIZE and self._terminal >= 0:
                    size = json.loads(data)
                    packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                    fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, packed)
                elif channel == CLOSE_CHANNEL and data[0] == STDIN and process.stdin is not None:
                    assert self._channels.protocol == V5, "version 4 has no such channel"
                    process.stdin.close()

    def _write(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        fd = self._terminal
        if fd < 0:
            if process.stdin is None or process.stdin.closed:
                return
            fd = process.stdin.fileno()
        view = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[os.write(fd, view) :]

    def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        with selectors.DefaultSelector() as selector:
            if self._tty:
                selector.register(self._terminal, selectors.EVENT_READ, STDOUT)
            else:
                assert process.stdout is not None
                assert process.stderr is not None
                selector.register(process.stdout, selectors.EVENT_READ, STDOUT)
                selector.register(process.stderr, selectors.EVENT_READ, STDERR)
            while selector.get_map():
                ended = process.poll() is not None
                ready = selector.select(0 if ended else 0.05)
                if ended and not ready:
                    return
                for key, _ in ready:
                    try:
                        data = os.read(key.fd, _BLOCK)
                    except OSError:
                        data = b""
                    if data:
                        with contextlib.suppress(OSError):  # the client has left
                            self._channels.send(key.data, data)
                    else:
                        selector.unregister(key.fileobj)
                if not _runs(self._container):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def _end(self, status: dict[str, Any]) -> None:
        end_session(self._channels, status)


def end_session(channels: ServerSocket, status: dict[str, Any]) -> None:
    """Send the last message of a command's connection, and close the connection."""
    with contextlib.suppress(OSError):
        channels.send(STATUS, json.dumps({"metadata": {}, **status}).encode())
    channels.close()


def forward(pod: str, ports: list[int], channels: ServerSocket) -> None:
    """Connect each port of a pod with two channels: one for data, and one for an error."""
    connections: dict[int, socket.socket] = {}
    for index, port in enumerate(ports):
        for channel in (2 * index, 2 * index + 1):
            channels.send(channel, struct.pack("<H", port))
        try:
            connections[2 * index] = socket.create_connection(("127.0.0.1", port))
        except OSError as e:
            channels.send(
                2 * index + 1,
                f"error forwarding port {port} to pod {pod}: failed to execute portforward in"
                f" network namespace: dial tcp4 127.0.0.1:{port}: connect:"
                f" {(e.strerror or str(e)).lower()}".encode(),
            )
    readers = []
    for channel, connection in connections.items():
        reader = threading.Thread(target=_copy, args=(connection, channel, channels), daemon=True)
        reader.start()
        readers.append(reader)
    if readers:
        threading.Thread(target=_end_with, args=(readers, channels), daemon=True).start()
    with contextlib.suppress(OSError):
        while (message := channels.receive()) is not None:
            if message[0] in connections:
                connections[message[0]].sendall(message[1])
    for connection in connections.values():
        connection.close()


def _copy(connection: socket.socket, channel: int, channels: ServerSocket) -> None:
    with contextlib.suppress(OSError):
        while data := connection.recv(_BLOCK):
            channels.send(channel, data)


def _end_with(readers: list[threading.Thread], channels: ServerSocket) -> None:
    for reader in readers:
        reader.join()
    time.sleep(0.05)
    channels.close()
