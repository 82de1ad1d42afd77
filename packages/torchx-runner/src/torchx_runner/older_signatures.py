"""Whether methods of older plugins accept a parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def accepts_parameter(function: Callable[..., Any], name: str) -> bool:
    """Return True if a function has a parameter of that name; ``**kwargs`` does not count.

    A function with ``**kwargs`` may ignore the argument, or pass it to another function that raises
    an error.
    """
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False
