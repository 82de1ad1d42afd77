"""The source of a component, complete enough to start one's own from."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from torchx_specs.errors import ComponentError


def source_of(fn: Callable[..., Any]) -> str:
    """Returns the imports of a component's file that come before it, two blank lines, and its
    source.

    Raises:
        ComponentError: there is no source
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
