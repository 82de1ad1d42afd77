"""Register the scheduler ``kubernetes_mcad``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler of this package."""
    yield SchedulerPlugin(
        "kubernetes_mcad",
        "torchx_sched_mcad.scheduler:create_scheduler",
        summary="Pods of a Kubernetes cluster in an AppWrapper (MCAD)",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of the cluster and of the user's rights, for ``torchx doctor``."""
    yield CheckPlugin("kubernetes_mcad:cluster", "torchx_sched_k8s.checks:check_cluster")
    yield CheckPlugin("kubernetes_mcad:operators", "torchx_sched_mcad.checks:check_mcad")
    yield CheckPlugin("kubernetes_mcad:rights", "torchx_sched_mcad.checks:check_mcad_rights")
