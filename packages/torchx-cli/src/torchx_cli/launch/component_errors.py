"""Reports an exception that a component raises as an error of that component, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchx_cli.exit_codes import fail
from torchx_cli.output.printing import write
from torchx_specs.components.materialize import component_error_location
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.errors import ComponentError, TorchXError, one_line


@contextmanager
def component_errors(component: str) -> Iterator[None]:
    """Raise ComponentError for an exception in a component; on ``--help``, print the help and exit.

    Args:
        component: The component's name on the command line.

    Raises:
        ComponentError: The component raised an exception that is not a TorchXError.
    """
    try:
        yield
    except ComponentHelpRequested as e:
        from torchx_specs.components.help import component_help

        write(component_help(e.component, prog=f"torchx run {component}"))
        fail(0)
    except TorchXError:
        raise
    except Exception as e:
        location = component_error_location(e)
        if location is None:
            raise
        raise ComponentError(
            f"component {component} failed: {type(e).__name__}: {one_line(e)} ({location})"
        ) from e
