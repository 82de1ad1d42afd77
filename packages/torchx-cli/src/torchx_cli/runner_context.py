"""Opens the runner of a command, and reads the status of existing apps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
        component_defaults: Default arguments, by component and parameter.
    """
    from torchx_runner import get_runner

    defaults: Any = component_defaults
    with get_runner(component_defaults=defaults) as runner:
        yield runner


def existing_status(runner: Runner, app_handle: str) -> AppStatus:
    """Return the status of an app.

    Raises:
        UnknownAppException: The app does not exist.
    """
    status = runner.status(app_handle)
    if status is None:
        raise UnknownAppException(app_handle)
    return status
