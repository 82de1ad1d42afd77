"""Registers the scheduler ``local_cwd``, and the pruner of its apps."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, PrunerPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler that runs apps on this machine."""
    yield SchedulerPlugin(
        "local_cwd",
        "torchx_sched_local.scheduler:create_scheduler",
        summary="Processes on this machine, in the current directory",
    )


@hookimpl
def torchx_pruners() -> Iterable[PrunerPlugin]:
    """Yield the pruner of apps that have ended."""
    yield PrunerPlugin(
        "local-apps",
        "torchx_sched_local.store.pruning:unused_apps",
        summary="Folders and logs of local apps that have ended",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of this machine, for ``torchx doctor``."""
    yield CheckPlugin("local_cwd:folder", "torchx_sched_local.checks:check_folder")
    yield CheckPlugin("local_cwd:gpus", "torchx_sched_local.checks:check_gpus")
