"""The supervisor that the hook yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_k8s_supervisor import lifecycle
from torchx_sched_k8s.backends.supervision import Supervision, Supervisor
from torchx_sched_k8s.options import KubernetesOpts
from torchx_specs.model.app import AppDef

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


class JobSupervisor(Supervisor):
    """A supervisor in a Job of its own."""

    def supervise(
        self,
        app: AppDef,
        app_id: str,
        service: dict[str, Any],
        jobs: Sequence[dict[str, Any]],
        opts: KubernetesOpts,
    ) -> list[dict[str, Any]]:
        from torchx_k8s_supervisor.objects import supervise

        return supervise(app, app_id, service, jobs, opts)

    def unsupervised(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        return lifecycle.unsupervised(objects)

    def rights_hint(self, resource: Mapping[str, Any]) -> str:
        return lifecycle.rights_hint(resource)

    def read(
        self,
        jobs: Sequence[Mapping[str, Any]],
        cluster: Cluster | None = None,
        namespace: str = "",
    ) -> Supervision:
        from torchx_k8s_supervisor.status import SupervisedApp, read_missing_jobs

        found = SupervisedApp(jobs)
        if cluster is None:
            return found
        missing = read_missing_jobs(cluster, namespace, found)
        return SupervisedApp(jobs, missing) if missing else found
