"""The registry of plugins for older TorchX releases, and of errors in these plugins."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from types import ModuleType
from typing import Any

from torchx.plugins._registration import NAMED_RESOURCES_ATTR as NAMED_RESOURCES_ATTR
from torchx.plugins._registration import PluginType
from torchx.util.entrypoints import _defer_load_ep
from torchx_specs.once import once
from torchx_specs.plugins.entry_points import entry_points

logger = logging.getLogger(__name__)

ENV_TORCHX_PLUGINS_SOURCE = "TORCHX_PLUGINS_SOURCE"

Factory = Callable[..., Any]


class PluginSource(IntFlag):
    """Places that are searched for plugins."""

    NONE = 0
    NAMESPACE_PKG = 1
    ENTRYPOINT = 2


_BOTH = PluginSource.NAMESPACE_PKG | PluginSource.ENTRYPOINT


@dataclass(frozen=True)
class RegistrationError:
    """The reason why a plugin is not registered.

    Attributes:
        module: The module or package of the plugin.
        error: The reason.
        name: Name of the plugin; None if the module cannot be imported.
        plugin_type: Kind of the plugin, as ``PluginType.label``; None if unknown.
    """

    module: str
    error: str
    name: str | None = None
    plugin_type: str | None = None


class PluginRegistry:
    """Plugins registered with ``@register`` or entry points, by kind and name.

    The first request for a kind searches for the plugins of this kind.

    Args:
        plugin_sources: Places to search.
    """

    def __init__(self, *, plugin_sources: PluginSource = _BOTH) -> None:
        self._sources = PluginSource(plugin_sources)
        self._found: dict[PluginType, dict[str, Factory]] = {}
        # The plugins that a thread has found so far, by kind and thread. A module that the thread
        # imports may ask for them. A lock could not be held during imports: they have locks, too.
        self._searches: dict[tuple[PluginType, int], dict[str, Factory]] = {}
        self._modules: dict[tuple[PluginType, str], str] = {}
        self._errors: list[RegistrationError] = []

    def get(self, plugin_type: PluginType) -> dict[str, Factory]:
        """Return the factories of one kind by name."""
        search = plugin_type, threading.get_ident()
        found = self._found.get(plugin_type, self._searches.get(search))
        if found is None:
            found = self._searches[search] = {}
            try:
                self._discover(plugin_type, found)
            finally:
                del self._searches[search]
            found = self._found.setdefault(plugin_type, found)
        return found

    def info(self, plugin_type: PluginType | None = None) -> Any:
        """Return a copy of the factories of one kind, or of all kinds by kind."""
        if plugin_type is not None:
            return dict(self.get(plugin_type))
        return {kind: dict(self.get(kind)) for kind in PluginType}

    @property
    def errors(self) -> list[RegistrationError]:
        """The errors that were found so far; reading them does not search for plugins."""
        return list(self._errors)

    def load_errors(self, plugin_type: PluginType | None = None) -> list[RegistrationError]:
        """Search for the plugins of one kind, or of all kinds, and return their errors."""
        kinds = list(PluginType) if plugin_type is None else [plugin_type]
        for kind in kinds:
            self.get(kind)
        if plugin_type is None:
            return self.errors
        places = (plugin_type.namespace, plugin_type.value)
        return [
            e
            for e in self._errors
            if e.plugin_type == plugin_type.label or e.module.startswith(places)
        ]

    def clear(self) -> None:
        """Forget all plugins and errors; the next request searches again, with a new registry."""
        self._found.clear()
        self._modules.clear()
        self._errors.clear()
        registry.cache_clear()

    def origin(self, plugin_type: PluginType, name: str) -> str:
        """Return the module that registers a plugin; empty if there is no such plugin."""
        return self._modules.get((plugin_type, name), "")

    def to_dict(self) -> dict[str, Any]:
        """Return all plugins and errors as plain data, by kind."""
        self.load_errors()
        report: dict[str, Any] = {}
        for kind in PluginType:
            rows: list[dict[str, Any]] = []
            children: dict[str, dict[str, list[str]]] = {}
            for name, factory in sorted(self.get(kind).items()):
                base = getattr(factory, "_plugin_base_name", None)
                if base:
                    key = (
                        "aliases" if getattr(factory, "_plugin_is_alias", False) else "fractionals"
                    )
                    children.setdefault(base, {}).setdefault(key, []).append(name)
                else:
                    rows.append({"name": name, "module": self.origin(kind, name)})
            for row in rows:
                row.update(children.get(row["name"], {}))
            rows += [
                {"name": e.name, "module": e.module, "error": e.error}
                for e in self._errors
                if e.plugin_type == kind.label and e.name
            ]
            report[kind.label] = rows
        report["errors"] = [
            {"module": e.module, "error": e.error} for e in self._errors if not e.name
        ]
        return report

    def __str__(self) -> str:
        import json

        lines: list[str] = []
        for section, rows in self.to_dict().items():
            lines.append(f"{section}: []" if not rows else f"{section}:")
            for row in rows:
                for i, (key, value) in enumerate(row.items()):
                    if isinstance(value, list):
                        shown = f"[{', '.join(value)}]"
                    elif key == "error":
                        shown = json.dumps(value, ensure_ascii=False)
                    else:
                        shown = value
                    lines.append(f"  {'-' if i == 0 else ' '} {key}: {shown}")
        return "\n".join(lines)

    # The following methods search for plugins.

    def _discover(self, kind: PluginType, plugins: dict[str, Factory]) -> None:
        if PluginSource.ENTRYPOINT in self._sources:
            for ep in entry_points(kind.value):
                source = ep.value.partition(":")[0]
                self._add(plugins, kind, ep.name, _defer_load_ep(ep), source)
        if PluginSource.NAMESPACE_PKG in self._sources:
            for module in self._namespace_modules(kind.namespace):
                self._scan(plugins, kind, module)

    def _scan(self, plugins: dict[str, Factory], kind: PluginType, module: ModuleType) -> None:
        for value in list(vars(module).values()):
            found = getattr(value, "_plugin_type", None)
            if not callable(value) or found is None:
                continue
            if getattr(value, "__module__", None) != module.__name__:
                continue  # another module defines this plugin, and registers it
            name = value._plugin_name
            if found is not kind:
                self._error(
                    module.__name__,
                    f"is a {found.label} but is under the {kind.label} namespace — use"
                    f" @register.{kind.label}() or move to `{found.namespace}`",
                    name,
                    found.label,
                )
            else:
                self._add(plugins, kind, name, value, module.__name__)

    def _add(
        self,
        plugins: dict[str, Factory],
        kind: PluginType,
        name: str,
        factory: Factory,
        module: str,
    ) -> None:
        if name in plugins:
            if plugins[name] is factory or _same_resource(kind, plugins[name], factory):
                return
            first = self._modules[kind, name]
            self._error(
                module, f"`{name}` is already registered by {first}, which wins", name, kind.label
            )
            return
        plugins[name] = factory
        self._modules[kind, name] = module

    def _namespace_modules(self, package: str) -> Iterator[ModuleType]:
        try:
            root = importlib.import_module(package)
        except ModuleNotFoundError as e:
            if not e.name or not (package + ".").startswith(e.name + "."):
                self._error(package, f"{type(e).__name__}: {e}")
            return
        except Exception as e:
            self._error(package, f"{type(e).__name__}: {e}")
            return
        if getattr(root, "__file__", None):
            yield root
        yield from self._modules_below(root)

    def _modules_below(self, package: ModuleType) -> Iterator[ModuleType]:
        modules = {info.name for info in pkgutil.iter_modules(package.__path__)}
        for name in (*sorted(modules), *sorted(_bare_folders(package) - modules)):
            if name.startswith("_"):
                continue
            full = f"{package.__name__}.{name}"
            try:
                module = importlib.import_module(full)
            except Exception as e:
                self._error(full, f"{type(e).__name__}: {e}")
                continue
            if name in modules:
                yield module
            if hasattr(module, "__path__"):
                yield from self._modules_below(module)

    def _error(
        self, module: str, error: str, name: str | None = None, plugin_type: str | None = None
    ) -> None:
        found = RegistrationError(module, error, name, plugin_type)
        if found not in self._errors:
            self._errors.append(found)
            what = (
                f"`{name}` in `{module}` {error}" if name else f"cannot import `{module}`: {error}"
            )
            logger.warning("%s", what)


def _bare_folders(package: ModuleType) -> set[str]:
    """Return the names of folders that have modules but no ``__init__.py``: pkgutil skips them."""
    files = (file for root in package.__path__ for file in Path(root).glob("*/*.py"))
    return {file.parent.name for file in files if file.parent.name.isidentifier()}


def _same_resource(kind: PluginType, first: Factory, second: Factory) -> bool:
    if kind is not PluginType.NAMED_RESOURCE:
        return False
    try:
        return bool(first() == second())
    except Exception:
        return False


@once
def registry() -> PluginRegistry:
    """Return the registry of this process.

    ``$TORCHX_PLUGINS_SOURCE`` selects the places to search: 0 none, 1 namespace packages, 2 entry
    points, 3 both (the default).

    Raises:
        ValueError: The variable has another value.
    """
    text = os.environ.get(ENV_TORCHX_PLUGINS_SOURCE, "3")
    if text not in ("0", "1", "2", "3"):
        raise ValueError(
            f"{ENV_TORCHX_PLUGINS_SOURCE}={text}: must be 0 (none), 1 (namespace packages),"
            " 2 (entry points) or 3 (both)"
        )
    return PluginRegistry(plugin_sources=PluginSource(int(text)))
