"""One runner for each scheduler, so that a scheduler that hangs holds up no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torchx_runner import AsyncRunner
from torchx_specs.errors import UnknownSchedulerException
from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_specs.model.handles import AppHandle

# How many requests to one scheduler are carried out at the same time.
_THREADS = 4


def _new_runner() -> AsyncRunner:
    return AsyncRunner(threads=_THREADS)


class Runners:
    """Runners by scheduler, created when they are first used.

    Args:
        make: Returns a new runner.
    """

    def __init__(self, make: Callable[[], AsyncRunner] = _new_runner) -> None:
        self._make = make
        self._first = make()
        self._runners: dict[str, AsyncRunner] = {}
        self.schedulers = self._first.scheduler_backends()

    def of(self, scheduler: str) -> AsyncRunner:
        """Return the runner of a scheduler.

        Raises:
            UnknownSchedulerException: The scheduler is not installed.
        """
        if scheduler not in self.schedulers:
            raise UnknownSchedulerException(scheduler, self.schedulers)
        if scheduler not in self._runners:
            self._runners[scheduler] = self._make()
        return self._runners[scheduler]

    def of_app(self, handle: AppHandle) -> AsyncRunner:
        """Return the runner of an app's scheduler.

        Raises:
            MalformedAppHandleException: The handle is malformed.
            UnknownSchedulerException: The scheduler is not installed.
        """
        return self.of(parse_app_handle(handle).scheduler_backend)

    async def close(self) -> None:
        """Close all runners."""
        for runner in (self._first, *self._runners.values()):
            await runner.close()
