"""Module attributes that are imported when first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(
    package: str,
    names_by_module: Mapping[str, str | Sequence[str]],
    submodules: str | Sequence[str] = "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for the module ``package``.

    ``names_by_module`` maps modules to the names that they define; a module that begins with a dot
    is below ``package``. ``submodules`` below ``package`` become attributes, too. Blanks separate
    the names in a string. The calling module must also import the names under ``TYPE_CHECKING``,
    for type checkers and editors.
    """
    source = {
        name: module
        for module, names in names_by_module.items()
        for name in (names.split() if isinstance(names, str) else names)
    }
    modules = frozenset(submodules.split() if isinstance(submodules, str) else submodules)

    def __getattr__(name: str) -> Any:  # noqa: N807 - for use as a module's function
        if name in source:
            value = getattr(importlib.import_module(source[name], package), name)
        elif name in modules:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    exported = sorted(source)

    def __dir__() -> list[str]:  # noqa: N807 - for use as a module's function
        return sorted({*exported, *modules, *vars(sys.modules[package])})

    return __getattr__, __dir__, exported
