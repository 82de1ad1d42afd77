"""Warnings for deprecated modules and functions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def deprecated_module(old_import: str, new_import: str, *, stacklevel: int = 3) -> None:
    """Warn that the calling module is deprecated.

    Args:
        old_import: The deprecated path.
        new_import: The path to use instead.
        stacklevel: Number of frames between the warning and the importing code.
    """
    warnings.warn(
        f"[Deprecated] {old_import} is deprecated and will be removed, use {new_import}",
        UserWarning,
        stacklevel=stacklevel,
    )


def deprecated(*, replacement: str | None = None) -> Callable[[_F], _F]:
    """Return a decorator for a deprecated function or class, which warns at each call.

    Args:
        replacement: The function or class to use instead.
    """

    def decorate(target: _F) -> _F:
        hint = f", use {replacement}" if replacement else ""
        message = f"[Deprecated] {target.__qualname__} is deprecated and will be removed{hint}"
        if isinstance(target, type):
            # Only __init__ is replaced, so that isinstance() and subclasses still work.
            original = target.__init__  # type: ignore[misc]  # of this very class

            @functools.wraps(original)
            def init(self: Any, *args: Any, **kwargs: Any) -> None:
                warnings.warn(message, UserWarning, stacklevel=2)
                original(self, *args, **kwargs)

            target.__init__ = init  # type: ignore[misc]
            return target

        @functools.wraps(target)
        def call(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, UserWarning, stacklevel=2)
            return target(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
