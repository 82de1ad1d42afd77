"""Calls into plugins that were written for older versions of an interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")

_CO_VARARGS = 0x04  # inspect.CO_VARARGS, without importing inspect


def call_with_accepted(method: Callable[..., R], *args: object) -> R:
    """Calls a method with as many of the arguments as it takes, the last ones left out first."""
    return method(*args[: _accepted(method, len(args))])


def _accepted(method: Any, count: int) -> int:
    code = getattr(getattr(method, "__func__", None), "__code__", None)
    if code is not None:
        return count if code.co_flags & _CO_VARARGS else min(count, code.co_argcount - 1)
    import inspect

    try:
        kinds = [p.kind for p in inspect.signature(method).parameters.values()]
    except (TypeError, ValueError):
        return count
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return count
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(count, sum(kind in positional for kind in kinds))
