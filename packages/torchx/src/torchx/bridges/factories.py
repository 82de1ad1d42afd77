"""Adapts the factories of plugins for older TorchX releases to the present interfaces."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from torchx_specs.errors import PluginError
from torchx_specs.plugins.entry_points import EntryPoint
from torchx_specs.plugins.records import import_object

_FACADE_COMPONENTS = "torchx.components"


def older_object(ep: EntryPoint) -> Any:
    """Return the object that an entry point names.

    Raises:
        PluginError: The object cannot be imported.
    """
    try:
        return import_object(ep.value)
    except Exception as e:
        raise PluginError(
            f"{ep.group} '{ep.name}' of {ep.distribution} {ep.version} cannot be loaded from"
            f" '{ep.value}': {type(e).__name__}: {e}"
        ) from e


def call_older(ep: EntryPoint, *args: Any, **kwargs: Any) -> Any:
    """Import the object that an entry point names, and call it."""
    return older_object(ep)(*args, **kwargs)


def create_older_scheduler(ep: EntryPoint, session_name: str, **params: Any) -> Any:
    """Create the scheduler of an entry point; see :func:`older_scheduler_factory`."""
    return older_scheduler_factory(older_object(ep))(session_name, **params)


def older_scheduler_factory(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt the factory of an older plugin's scheduler to the present interface.

    The adapted factory passes each environment variable ``TORCHX_FOO`` as the keyword ``foo``,
    unless the caller passes that keyword. A factory without ``**kwargs`` receives only the keywords
    that it has.
    """

    @functools.wraps(factory)
    def create(session_name: str, **params: Any) -> Any:
        from_env = {
            key[len("TORCHX_") :].lower(): value
            for key, value in os.environ.items()
            if key.startswith("TORCHX_")
        }
        return factory(session_name, **_accepted(factory, {**from_env, **params}))

    return create


def _accepted(factory: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    import inspect

    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return kwargs
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return kwargs
    names = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return {key: value for key, value in kwargs.items() if key in names}


def component_module(ep: EntryPoint) -> str:
    """Return the name of the module whose components an entry point registers.

    The entry point names the module, or a function that returns the module or its name.
    """
    module, colon, _ = ep.value.partition(":")
    if colon:
        found = older_object(ep)
        found = found() if callable(found) else found
        module = found if isinstance(found, str) else found.__name__
    if module == _FACADE_COMPONENTS or module.startswith(_FACADE_COMPONENTS + "."):
        module = "torchx_components" + module[len(_FACADE_COMPONENTS) :]
    return module


def read_by_plugin(path: str) -> str:
    """Read a component file with the entry point ``get_file_contents`` of ``torchx.file``.

    Raises:
        FileNotFoundError: The plugin does not have the file, or is not installed.
    """
    from torchx.util.entrypoints import load

    read = load("torchx.file", "get_file_contents", default=None)
    if read is None:
        raise FileNotFoundError(path)
    return str(read(path))
