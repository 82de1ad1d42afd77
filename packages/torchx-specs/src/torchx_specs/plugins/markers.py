"""The decorators that mark hooks and their implementations.

They set the same attributes as pluggy's own decorators, so that a plugin's module does not have to
import pluggy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

#: The entry-point group of plugins, and their project name in pluggy.
PROJECT = "torchx"

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

#: Every hook, with the record that it yields.
HOOKS: dict[str, type[Any]] = {}


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
    """Mark a function of a plugin as an implementation of the hook with the same name.

    Args:
        function: The function, if the decorator is used without parentheses.
        tryfirst: Whether the records of this hook override records of other plugins.
        trylast: Whether this hook is called after the hooks of other plugins.
        specname: Name of the hook, if it is not the function's name.
    """

    def mark(func: F) -> F:
        unused = dict.fromkeys(("wrapper", "hookwrapper", "optionalhook"), False)
        options = {**unused, "tryfirst": tryfirst, "trylast": trylast, "specname": specname}
        setattr(func, PROJECT + "_impl", options)
        return func

    return mark if function is None else mark(function)


def hookspec(record: type[R]) -> Callable[[Callable[[], Iterable[R]]], Callable[[], Iterable[R]]]:
    """Mark a function as the specification of a hook that yields records of the type ``record``."""

    def mark(function: Callable[[], Iterable[R]]) -> Callable[[], Iterable[R]]:
        HOOKS[function.__name__] = record
        warnings = {"warn_on_impl": None, "warn_on_impl_args": None}
        setattr(function, PROJECT + "_spec", {"firstresult": False, "historic": False, **warnings})
        return function

    return mark
