"""Register the schedulers ``kubernetes`` and ``kubernetes_mcad``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the schedulers of this package."""
    yield SchedulerPlugin(
        "kubernetes",
        "torchx_sched_k8s.scheduler:create_scheduler",
        summary="Pods of a Kubernetes cluster: plain Jobs, JobSet or Volcano",
    )
    yield SchedulerPlugin(
        "kubernetes_mcad",
        "torchx_sched_k8s.mcad.scheduler:create_scheduler",
        summary="Pods of a Kubernetes cluster in an AppWrapper (MCAD)",
    )
