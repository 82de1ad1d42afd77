"""Returns the factories of the installed schedulers, for clients of older TorchX releases."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import SchedulerPlugin
from torchx_specs.schedulers.api import Scheduler

#: Schedulers of older TorchX releases, by name, with the module that defined each one.
DEFAULT_SCHEDULER_MODULES: dict[str, str] = {
    "local_docker": "torchx.schedulers.docker_scheduler",
    "local_cwd": "torchx.schedulers.local_scheduler",
    "slurm": "torchx.schedulers.slurm_scheduler",
    "kubernetes": "torchx.schedulers.kubernetes_scheduler",
    "kubernetes_mcad": "torchx.schedulers.kubernetes_mcad_scheduler",
    "aws_batch": "torchx.schedulers.aws_batch_scheduler",
    "aws_sagemaker": "torchx.schedulers.aws_sagemaker_scheduler",
    "lsf": "torchx.schedulers.lsf_scheduler",
}


class SchedulerFactory(Protocol):
    """A function that creates a scheduler."""

    def __call__(self, session_name: str, **kwargs: object) -> Scheduler[Any]: ...


def get_scheduler_factories(*, skip_defaults: bool = False) -> dict[str, SchedulerFactory]:
    """Return the factories of the installed schedulers by name, third-party ones first.

    Args:
        skip_defaults: Whether to leave out the schedulers of this project.
    """
    catalog = get_manager().schedulers()
    theirs: dict[str, SchedulerFactory] = {}
    ours: dict[str, SchedulerFactory] = {}
    for name in catalog.names():
        if name in catalog.conflicts:
            theirs[name] = _deferred(functools.partial(catalog.__getitem__, name))
            continue
        record = catalog[name]
        (ours if record.origin.is_builtin else theirs)[name] = _deferred(
            functools.partial(catalog.__getitem__, name)
        )
    order = [name for name in DEFAULT_SCHEDULER_MODULES if name in ours]
    return theirs if skip_defaults else {**theirs, **{name: ours[name] for name in order}, **ours}


def _deferred(record: Callable[[], SchedulerPlugin]) -> SchedulerFactory:
    def create(session_name: str, **kwargs: object) -> Scheduler[Any]:
        scheduler: Scheduler[Any] = record().load()(session_name, **kwargs)
        return scheduler

    return create


def get_default_scheduler_name() -> str:
    """Return ``local_cwd``, or the first installed scheduler if ``local_cwd`` is not installed."""
    names = list(get_scheduler_factories())
    return "local_cwd" if "local_cwd" in names or not names else names[0]
