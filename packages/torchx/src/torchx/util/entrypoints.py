"""Loads entry points, for clients of older TorchX releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from torchx_specs.plugins.entry_points import EntryPoint, entry_points
from torchx_specs.plugins.records import import_object

T = TypeVar("T")

_NO_DEFAULT: Final = object()


def load(group: str, name: str, default: Any = _NO_DEFAULT) -> Any:
    """Import and return the object of the entry point ``name`` in ``group``.

    Raises:
        KeyError: The entry point does not exist, and no default is given.
    """
    for ep in entry_points(group):
        if ep.name == name:
            return import_object(ep.value)
    if default is _NO_DEFAULT:
        raise KeyError(f"no entry point '{name}' in group '{group}'")
    return default


def load_group(group: str) -> dict[str, Any]:
    """Return a function for each entry point of a group, by name.

    Such a function imports the object ``module:attribute`` of the entry point, and calls the object
    with the function's arguments. If the entry point names a module, the function returns the
    module.
    """
    return {ep.name: _defer_load_ep(ep) for ep in entry_points(group)}


def _defer_load_ep(ep: EntryPoint) -> Callable[..., Any]:
    def run(*args: object, **kwargs: object) -> Any:
        found = import_object(ep.value)
        return found(*args, **kwargs) if ":" in ep.value else found

    return run
