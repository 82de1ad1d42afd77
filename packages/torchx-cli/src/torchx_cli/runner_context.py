"""Opens the runner of a command, and reads the status of existing apps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import UnknownAppException

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus


@contextmanager
def open_runner(
    component_defaults: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[Runner]:
    """Open a runner, and close it at the end of the context.

    Args:
        component_defaults: Default arguments, by component and parameter; ignored if a test has
            replaced ``get_runner`` by a function without this parameter.
    """
    from torchx_runner import api

    keywords: dict[str, Any] = {}
    if component_defaults is not None and _has_component_defaults(api.get_runner):
        keywords["component_defaults"] = component_defaults
    with api.get_runner(**keywords) as runner:
        runner.untracked_variables = _untracked_variables
        yield runner


def _untracked_variables(scheduler: str) -> Mapping[str, str]:
    from torchx_runner.default_tracker import job_variables

    return job_variables(scheduler)


def _has_component_defaults(get_runner: Callable[..., Any]) -> bool:
    """Return True if ``get_runner``, which a test may replace, accepts ``component_defaults``."""
    if getattr(get_runner, "__module__", None) == "torchx_runner.api":
        return True
    import inspect

    try:
        parameters = inspect.signature(get_runner).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "component_defaults" or p.kind == p.VAR_KEYWORD for p in parameters)


def existing_status(runner: Runner, app_handle: str) -> AppStatus:
    """Return the status of an app.

    Raises:
        UnknownAppException: The app does not exist.
    """
    status = runner.status(app_handle)
    if status is None:
        raise UnknownAppException(app_handle)
    return status
