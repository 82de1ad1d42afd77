"""Reads the source of a component, as a template for a new component."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from torchx_specs.errors import ComponentError


def source_of(fn: Callable[..., Any]) -> str:
    """Return the source of a component, preceded by the module's imports above it.

    Raises:
        ComponentError: The source is not available.
    """
    target: Any = inspect.unwrap(fn)
    try:
        body = inspect.getsource(target)
        file_lines, _ = inspect.findsource(target)
    except (OSError, TypeError) as e:
        raise ComponentError(f"the source of {target.__name__} is not available: {e}") from None
    text = "".join(file_lines)
    imports = []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(ast.get_source_segment(text, node) or "")
        elif getattr(node, "name", None) == target.__name__:
            break
    return "\n".join([*imports, "", "", body]) if imports else body
