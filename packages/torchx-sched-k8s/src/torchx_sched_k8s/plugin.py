"""Register the scheduler ``kubernetes``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler of this package."""
    yield SchedulerPlugin(
        "kubernetes",
        "torchx_sched_k8s.scheduler:create_scheduler",
        summary="Pods of a Kubernetes cluster: plain Jobs, JobSet or Volcano",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of the cluster and of the user's rights, for ``torchx doctor``."""
    yield CheckPlugin("kubernetes:cluster", "torchx_sched_k8s.checks:check_cluster")
    yield CheckPlugin("kubernetes:operators", "torchx_sched_k8s.checks:check_operators")
    yield CheckPlugin("kubernetes:rights", "torchx_sched_k8s.checks:check_rights")
