"""Errors that a component raises: told as its own, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from torchx_cli.exit_codes import fail, one_line
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.errors import ComponentError, TorchXError


@contextmanager
def component_errors(component: str) -> Iterator[None]:
    """Names the component in errors that come out of its code, and prints its help if asked to.

    Args:
        component: its name on the command line

    Raises:
        ComponentError: the component raised something that is none of our errors
    """
    try:
        yield
    except ComponentHelpRequested as e:
        from torchx_cli.output.printing import write
        from torchx_specs.components import component_help

        write(component_help(e.component, prog=f"torchx run {component}"))
        fail(0)
    except TorchXError:
        raise
    except Exception as e:
        where = _raised_in_component(e.__traceback__)
        if where is None:
            raise
        raise ComponentError(
            f"component {component} failed: {type(e).__name__}: {one_line(e)} ({where})"
        ) from e


def _raised_in_component(traceback: TracebackType | None) -> str | None:
    """Returns ``file:line`` of the component's code that an error passed through, or None.

    A component's code is what the materializer calls.
    """
    called = False
    while traceback is not None:
        frame = traceback.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if called and not module.startswith("torchx_specs.components"):
            return f"{frame.f_code.co_filename}:{traceback.tb_lineno}"
        called = called or frame.f_code.co_name == "materialize_appdef"
        traceback = traceback.tb_next
    return None
