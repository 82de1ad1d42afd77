"""Module attributes that are imported when first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(
    package: str, names_by_module: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns ``__getattr__``, ``__dir__`` and ``__all__`` for the module ``package``.

    Args:
        package: ``__name__`` of the module
        names_by_module: which names to take from which module
        submodules: modules below ``package`` that become attributes when first used
    """
    source = {name: module for module, names in names_by_module.items() for name in names}
    modules = frozenset(submodules)

    def __getattr__(name: str) -> Any:  # noqa: N807 - it becomes the module's
        if name in source:
            value = getattr(importlib.import_module(source[name]), name)
        elif name in modules:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    exported = sorted(source)

    def __dir__() -> list[str]:  # noqa: N807 - it becomes the module's
        return sorted({*exported, *modules, *vars(sys.modules[package])})

    return __getattr__, __dir__, exported
