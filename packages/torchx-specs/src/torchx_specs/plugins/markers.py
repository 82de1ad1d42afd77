"""The markers of hooks and their implementations.

pluggy's own markers only set an attribute. Ours set the same attribute, so that a plugin's module
does not import pluggy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

#: The entry-point group of plugins, and the project name that pluggy knows.
PROJECT = "torchx"

F = TypeVar("F", bound=Callable[..., Any])


@overload
def hookimpl(function: F) -> F: ...
@overload
def hookimpl(
    *, tryfirst: bool = False, trylast: bool = False, specname: str | None = None
) -> Callable[[F], F]: ...
def hookimpl(
    function: F | None = None,
    *,
    tryfirst: bool = False,
    trylast: bool = False,
    specname: str | None = None,
) -> F | Callable[[F], F]:
    """Mark a function of a plugin as an implementation of the hook of its name.

    Args:
        function: The function, where the marker is used without parentheses.
        tryfirst: Whether this plugin deliberately overrides other plugins' records.
        trylast: Whether this plugin comes after all others.
        specname: Name of the hook, if it is not the function's name.
    """

    def mark(func: F) -> F:
        options = {
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": tryfirst,
            "trylast": trylast,
            "specname": specname,
        }
        setattr(func, PROJECT + "_impl", options)
        return func

    return mark if function is None else mark(function)


def hookspec(function: F) -> F:
    """Mark a function as the specification of a hook."""
    options = {
        "firstresult": False,
        "historic": False,
        "warn_on_impl": None,
        "warn_on_impl_args": None,
    }
    setattr(function, PROJECT + "_spec", options)
    return function
