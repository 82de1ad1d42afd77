"""Registers ``local_docker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Gives the scheduler of a Docker Engine."""
    yield SchedulerPlugin(
        "local_docker",
        "torchx_sched_docker.scheduler:create_scheduler",
        summary="Containers of a Docker Engine, each replica one",
    )
