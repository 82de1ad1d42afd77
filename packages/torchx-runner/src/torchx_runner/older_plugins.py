"""Calls of methods that gained parameters since older schedulers were written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_with_accepted(method: Callable[..., R], *args: object) -> R:
    """Call a method with as many of the arguments as it accepts, leaving out the last ones.

    Schedulers of clients need this: their ``_validate`` may lack ``cfg``, and their ``list`` may
    have no parameter.
    """
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # not a Python function
        return method(*args)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return method(*args)
    return method(*args[: sum(p.kind in _POSITIONAL for p in parameters)])
