"""Calls methods that older plugins define with fewer parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_with_accepted(method: Callable[..., R], *args: object) -> R:
    """Call a method with the leading arguments that it accepts, and omit the others.

    Schedulers that were written for older releases of TorchX need this: ``_validate`` may lack the
    parameter ``cfg``, and ``list`` may have no parameters.
    """
    count = _count(getattr(method, "__func__", method))
    if count is None:
        return method(*args)
    return method(*args[: count - inspect.ismethod(method)])


@lru_cache(maxsize=256)
def _count(function: Callable[..., object]) -> int | None:
    """Return how many positional arguments a function accepts; None for any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function written in C may have no signature
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in _POSITIONAL for p in parameters)
