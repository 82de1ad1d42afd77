"""Calls methods that older plugins define with fewer parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_with_accepted(method: Callable[..., R], *args: object) -> R:
    """Call a method with the leading arguments that it accepts, and omit the others.

    Schedulers that were written for older releases of TorchX need this: ``_validate`` may lack the
    parameter ``cfg``, and ``list`` may have no parameters.
    """
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # a method written in C may have no signature
        return method(*args)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return method(*args)
    return method(*args[: sum(p.kind in _POSITIONAL for p in parameters)])
