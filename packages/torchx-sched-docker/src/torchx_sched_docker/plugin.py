"""The plugin that registers ``local_docker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the record of the scheduler for a Docker Engine."""
    yield SchedulerPlugin(
        "local_docker",
        "torchx_sched_docker.scheduler:create_scheduler",
        summary="Containers of a Docker Engine, one for each replica",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the check of the engine, for ``torchx doctor``."""
    yield CheckPlugin("local_docker:engine", "torchx_sched_docker.checks:check_engine")
