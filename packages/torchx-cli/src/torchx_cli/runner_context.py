"""Opens the runner of a command; accepts the test doubles that other programs' tests pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_specs.errors import UnknownAppException

if TYPE_CHECKING:
    from torchx_cli.logs.reader import LogBlocks
    from torchx_runner import Runner

T = TypeVar("T")


@contextmanager
def open_runner(
    component_defaults: dict[str, dict[str, str]] | None = None,
) -> Iterator[Runner]:
    """Open a runner, and close it at the end of the context.

    Args:
        component_defaults: Default arguments, by component and parameter.
    """
    from torchx_runner import api

    with api.get_runner() as runner:
        runner.untracked_variables = _untracked_variables
        if component_defaults is not None:
            # Not an argument: other programs replace get_runner by functions without parameters.
            runner._component_defaults = component_defaults
        yield runner


def _untracked_variables(scheduler: str) -> Mapping[str, str]:
    from torchx_runner.default_tracker import job_variables

    return job_variables(scheduler)


def existing(found: T | None, app_handle: str) -> T:
    """Return what a scheduler knows of an app.

    Raises:
        UnknownAppException: It is None, because the app does not exist.
    """
    if found is None:
        raise UnknownAppException(app_handle)
    return found


def is_double(runner: Runner) -> bool:
    """Return True if an object is neither a Runner nor of a class derived from Runner."""
    from torchx_runner import Runner

    # isinstance() would return True for a mock with `spec=Runner`.
    return not issubclass(type(runner), Runner)


def log_blocks_of(runner: Runner) -> LogBlocks:
    """Return the function that reads the logs of several replicas.

    A test double is read with ``log_lines``, the only such method of older releases.
    """
    if not is_double(runner):
        return runner.log_blocks

    from torchx_specs.schedulers.older import OlderLogs

    def log_lines(
        app_handle: str, role: str, k: int, regex: str | None, *limits: Any
    ) -> Iterable[str]:
        # Tests expect the call that the older command makes: without options that are not set.
        named = zip(("since", "until", "should_tail", "streams"), limits, strict=True)
        given = {name: value for name, value in named if value is not None}
        return runner.log_lines(app_handle, role, k, regex, **{"streams": None, **given})

    return OlderLogs(runner, log_lines).read_many
