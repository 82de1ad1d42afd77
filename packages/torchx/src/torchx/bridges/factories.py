"""Finds plugins for older TorchX releases, and adapts their factories to the present interfaces."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torchx_specs.errors import PluginError
from torchx_specs.plugins.entry_points import EntryPoint, entry_points
from torchx_specs.plugins.records import Origin, import_object

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


def older_entry_points(group: str) -> Iterator[EntryPoint]:
    """Yield the entry points of an older group, except those for objects of TorchX itself.

    In older TorchX releases, a plugin's scheduler hides the built-in schedulers, so plugins
    register the built-in schedulers again. An older release that is also installed registers its
    own fsspec tracker.
    """
    if not _source_enabled(2):
        return
    for ep in dict.fromkeys(entry_points(group)):
        if not _is_ours(ep):
            yield ep


def _is_ours(ep: EntryPoint) -> bool:
    if ep.group == "torchx.tracker":
        return (ep.name, ep.value) == ("fsspec", "torchx.tracker.backend.fsspec:create")
    if ep.group != "torchx.schedulers":
        return False
    from torchx.schedulers._factories import DEFAULT_SCHEDULER_MODULES

    return ep.value == f"{DEFAULT_SCHEDULER_MODULES.get(ep.name)}:create_scheduler"


def namespace_plugins(group: str) -> Iterator[tuple[str, Callable[..., Any], Origin]]:
    """Yield name, factory and origin of each plugin in ``torchx_plugins.<kind>``.

    Plugins whose names are also names of entry points are left out.

    Raises:
        PluginError: After the last plugin: a module could not be loaded; the message names each
            module and its error.
    """
    if not _has_namespace() or not _source_enabled(1):
        return
    from torchx.plugins._registration import PluginType
    from torchx.plugins._registry import registry

    kind = PluginType(group)
    from_entry_points = {ep.name for ep in entry_points(group)} if _source_enabled(2) else set()
    for name, factory in registry().get(kind).items():
        if name not in from_entry_points:  # older_entry_points() yields plugins of entry points
            yield name, factory, Origin(plugin=registry().origin(kind, name))
    if errors := registry().load_errors(kind):
        raise PluginError("; ".join(f"{e.name or e.module}: {e.error}" for e in errors))


def _has_namespace() -> bool:
    # Like importlib.util.find_spec(), whose module a start need not import.
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return any(finder.find_spec("torchx_plugins", None) for finder in finders)


def _source_enabled(bit: int) -> bool:
    text = os.environ.get("TORCHX_PLUGINS_SOURCE", "3")
    if text not in ("0", "1", "2", "3"):
        raise PluginError(
            f"TORCHX_PLUGINS_SOURCE={text}: must be 0 (none), 1 (namespace packages),"
            " 2 (entry points) or 3 (both)"
        )
    return bool(int(text) & bit)
