"""The plugin that registers ``local_docker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the record of the scheduler for a Docker Engine."""
    yield SchedulerPlugin(
        "local_docker",
        "torchx_sched_docker.scheduler:create_scheduler",
        summary="Containers of a Docker Engine, one for each replica",
    )
