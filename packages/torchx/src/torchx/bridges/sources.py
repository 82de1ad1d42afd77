"""Finds plugins for older TorchX releases, in entry points and namespace packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchx_specs.errors import PluginError
from torchx_specs.plugins.entry_points import EntryPoint, entry_points
from torchx_specs.plugins.records import Origin


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
    # `import importlib.util` does not wait for the attribute, which another thread may still set
    from importlib.util import find_spec

    return find_spec("torchx_plugins") is not None


def _source_enabled(bit: int) -> bool:
    import os

    text = os.environ.get("TORCHX_PLUGINS_SOURCE", "3")
    if text not in ("0", "1", "2", "3"):
        raise PluginError(
            f"TORCHX_PLUGINS_SOURCE={text}: must be 0 (none), 1 (namespace packages),"
            " 2 (entry points) or 3 (both)"
        )
    return bool(int(text) & bit)
