"""Commands and ports inside the pods of an app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_specs.model.status import AppState
from torchx_specs.schedulers.sessions import ReplicaNotRunningError, Session, Sessions, TerminalSize

if TYPE_CHECKING:
    from socket import socket

    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.scheduler import KubernetesScheduler
    from torchx_sched_k8s.status.pod_states import Pod


class KubernetesSessions(Sessions["KubernetesScheduler"]):
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
        from torchx_sched_k8s.sessions.exec import PodExec

        cluster, namespace, pod = self._running_pod(app_id, role, k)
        return PodExec(cluster, namespace, pod.name, pod.container, command, tty, stdin)

    def connect(self, app_id: str, role: str, k: int, port: int) -> socket:
        """Return a socket that is connected to a port of a pod; see :meth:`Sessions.connect`."""
        from torchx_sched_k8s.sessions.ports import open_port

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
