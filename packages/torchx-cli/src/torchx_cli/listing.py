"""Lists apps for the commands that show or search them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchx_cli.arguments.scheduler_choice import all_schedulers, read_cfg, take_host
from torchx_cli.runner_context import open_runner
from torchx_runner.submissions.all_schedulers import DEFAULT_TIMEOUT, ListedApps, list_all

if TYPE_CHECKING:
    from torchx_specs.schedulers import ListAppResponse


def list_apps(scheduler: str, scheduler_args: Iterable[str] = ()) -> list[ListAppResponse]:
    """Return the apps of one scheduler, listed with the given options and those in the files.

    Args:
        scheduler: Name of the scheduler.
        scheduler_args: The values of ``-cfg``.
    """
    # list_schedulers() calls this function in several threads. Each call has its own runner,
    # because a scheduler that hangs while it is created holds the lock of its runner.
    name, literals = take_host(scheduler, scheduler_args)
    with open_runner() as runner:
        return runner.list(name, read_cfg(runner, name, literals) or None)


def list_schedulers(
    scheduler: str | None, timeout: float = DEFAULT_TIMEOUT
) -> ListedApps[ListAppResponse]:
    """Return the apps of one scheduler, or of all installed schedulers.

    Args:
        scheduler: Name of the scheduler; None means all.
        timeout: How long to wait for the answers of all schedulers, in seconds.
    """
    names = all_schedulers() if scheduler is None else [scheduler]
    return list_all(names, list_apps, timeout)
