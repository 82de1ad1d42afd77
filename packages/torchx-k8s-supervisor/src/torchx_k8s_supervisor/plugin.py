"""Register the supervisor of the scheduler ``kubernetes``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SupervisorPlugin, hookimpl


@hookimpl
def torchx_supervisors() -> Iterable[SupervisorPlugin]:
    """Yield the supervisor of apps of plain Jobs."""
    yield SupervisorPlugin(
        "kubernetes",
        "torchx_k8s_supervisor.supervisor:JobSupervisor",
        summary="A pod that ends or restarts the whole app",
    )
