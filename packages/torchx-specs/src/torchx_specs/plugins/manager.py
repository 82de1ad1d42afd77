"""The plugin manager: loads the installed plugins, calls their hooks, and isolates failures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torchx_specs import hookspecs
from torchx_specs.errors import nearest
from torchx_specs.hookspecs import HOOKS
from torchx_specs.plugins import records
from torchx_specs.plugins.catalog import Catalog
from torchx_specs.plugins.entry_points import entry_points, normalize
from torchx_specs.plugins.markers import PROJECT
from torchx_specs.plugins.records import Origin, import_object
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED

if TYPE_CHECKING:
    from pluggy import HookImpl
    from pluggy import PluginManager as Pluggy

R = TypeVar("R", bound="records.Record[Any]")

#: Exceptions that do not count as a failure of the plugin. Every other exception does, including
#: SystemExit, and the BaseException that a panic in a Rust library raises.
_INTERRUPTS = (KeyboardInterrupt, GeneratorExit)

_STAGES = {
    "import": "cannot be imported",
    "hook": "failed in a hook",
    "record": "yielded an invalid record",
}


class PluginProblem(NamedTuple):
    """A failure of a plugin."""

    origin: Origin
    stage: str
    message: str

    def __str__(self) -> str:
        name = f" ({self.origin.plugin})" if self.origin.plugin and self.origin.distribution else ""
        return f"plugin {self.origin}{name} {_STAGES[self.stage]}: {self.message}"


class Registration(NamedTuple):
    """An installed plugin, and whether it is enabled or blocked; ``target`` is its module."""

    origin: Origin
    target: str
    enabled: bool


def _catalog_method(record: type[R]) -> Callable[[PluginManager], Catalog[R]]:
    """Return a method of the manager that returns the records of one type by name."""
    hook = next(hook for hook, yielded in HOOKS.items() if yielded is record)

    def catalog(self: PluginManager) -> Catalog[R]:
        return Catalog(record.kind, self._records(hook))

    catalog.__doc__ = f"Return every {record.kind} of the plugins, by name."
    return catalog


class PluginManager:
    """Loads plugins and collects their records; a process may create several managers.

    Each plugin's hook is called separately. If a plugin fails to import, raises in a hook, or
    yields an invalid record, a :class:`PluginProblem` is added to ``problems``; other plugins are
    not affected.

    Args:
        path: Folders to search for installed distributions; ``sys.path`` if None.
        disabled: Distributions or plugin names that are not loaded, in addition to those in
            ``$TORCHX_PLUGINS_DISABLED``.
        discover: Whether installed plugins are loaded.

    Attributes:
        problems: The failures so far.
    """

    def __init__(
        self, path: Iterable[str] | None = None, disabled: Iterable[str] = (), discover: bool = True
    ) -> None:
        from_env = os.environ.get(ENV_TORCHX_PLUGINS_DISABLED, "").split(",")
        self._disabled = {normalize(d.strip()) for d in (*from_env, *disabled) if d.strip()}
        self._path = None if path is None else list(path)
        self._discover = discover
        self._origins: dict[str, Origin] = {}
        self._collected: dict[str, list[tuple[Any, bool]]] = {}
        self._pluggy: Pluggy | None = None
        self.problems: list[PluginProblem] = []
        self._installed: list[tuple[Origin, str]] = []

    def register(self, plugin: object, name: str, origin: Origin | None = None) -> None:
        """Add a plugin that is not installed: a module, or another object with hooks.

        Error messages name the plugin by its origin. A name that is in use is one of ``problems``.
        """
        origin = origin or Origin(plugin=name)
        manager = self._load()
        try:
            registered = manager.register(plugin, name)
        except Exception as e:
            self._add_problem(origin, "hook", f"{type(e).__name__}: {e}")
            return
        if registered is not None:
            self._origins[registered] = origin
            self._collected.clear()
            for caller in manager.get_hookcallers(plugin) or ():
                if not caller.has_spec():
                    text = f"there is no hook {caller.name};{nearest(caller.name, HOOKS)}"
                    self._add_problem(origin, "hook", text.rstrip(";"))

    def block(self, names: Iterable[str]) -> None:
        """Block more plugins from now on; ``names`` are distributions or plugin names."""
        added = {normalize(name) for name in names} - self._disabled
        if added:
            self._disabled |= added
            self._collected.clear()

    @property
    def registrations(self) -> list[Registration]:
        """The installed plugins, including blocked ones; empty before the plugins are loaded."""
        return [Registration(o, target, not self._is_blocked(o)) for o, target in self._installed]

    def _is_blocked(self, origin: Origin) -> bool:
        return not self._disabled.isdisjoint(
            (normalize(origin.distribution), normalize(origin.plugin))
        )

    # Each hook has a method that returns its records.

    def schedulers(self) -> Catalog[records.SchedulerPlugin]:
        """Return the schedulers that apps can run on."""
        found = self._records("torchx_schedulers")
        return Catalog(records.SchedulerPlugin.kind, (pair for pair in found if pair[0].runnable))

    def configurable_schedulers(self) -> Catalog[records.SchedulerPlugin]:
        """Return the schedulers that may have a section in ``.torchxconfig``."""
        catalog = self.schedulers()
        runnable = catalog.names()
        for record, tryfirst in self._records("torchx_schedulers"):
            if record.name not in runnable:
                catalog.add(record, tryfirst)
        return catalog

    named_resources = _catalog_method(records.ResourcePlugin)
    trackers = _catalog_method(records.TrackerPlugin)
    commands = _catalog_method(records.CommandPlugin)
    workspaces = _catalog_method(records.WorkspacePlugin)
    pruners = _catalog_method(records.PrunerPlugin)
    checks = _catalog_method(records.CheckPlugin)
    event_handlers = _catalog_method(records.EventHandlerPlugin)
    log_sinks = _catalog_method(records.LogSinkPlugin)
    notifiers = _catalog_method(records.NotifierPlugin)

    def components(self) -> tuple[records.ComponentPlugin, ...]:
        """Return the component groups; several plugins may share a group."""
        found = self._records("torchx_components")
        return tuple(dict.fromkeys(replace(group, deliberate=first) for group, first in found))

    # The following methods load plugins and collect their records.

    def _records(self, hook: str) -> list[tuple[Any, bool]]:
        """Return pairs of a record and whether the record deliberately overrides others."""
        if hook not in self._collected:
            impls = reversed(getattr(self._load().hook, hook).get_hookimpls())
            self._collected[hook] = [
                pair for impl in impls for pair in self._records_of(hook, impl)
            ]
        return self._collected[hook]

    def _records_of(self, hook: str, impl: HookImpl) -> Iterator[tuple[Any, bool]]:
        """Yield the valid records of one plugin, up to an exception that its hook raises."""
        origin = self._origins.get(impl.plugin_name, Origin(plugin=impl.plugin_name))
        if self._is_blocked(origin):  # the plugin was blocked after it was imported
            return
        try:
            yielded: Any = impl.function()
            record: Any
            for record in () if yielded is None else yielded:
                if isinstance(record, HOOKS[hook]):
                    problem = record.problem()
                else:
                    problem = f"{hook} must yield {HOOKS[hook].__name__}, got {record!r:.100}"
                if problem:
                    self._add_problem(origin, "record", problem)
                    continue
                if record.origin == Origin():  # a bridge sets the origin of the bridged plugin
                    record = replace(record, origin=origin)
                yield record, impl.tryfirst
        except _INTERRUPTS:
            raise
        except BaseException as e:
            self._add_problem(origin, "hook", f"{hook}: {type(e).__name__}: {e}")

    def _load(self) -> Pluggy:
        if self._pluggy is not None:
            return self._pluggy
        import pluggy

        self._pluggy = pluggy.PluginManager(PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        found = entry_points(PROJECT, path=self._path) if self._discover else []
        # Register in reverse order, because pluggy calls the last registered plugin first.
        for ep in reversed(found):
            origin = Origin(ep.distribution, ep.version, ep.name)
            self._installed.insert(0, (origin, ep.value))
            if self._is_blocked(origin):
                continue
            try:
                plugin = import_object(ep.value)
            except _INTERRUPTS:
                raise
            except BaseException as e:
                self._add_problem(origin, "import", f"{ep.value}: {type(e).__name__}: {e}")
            else:
                self.register(plugin, f"{ep.distribution}:{ep.name}", origin)
        return self._pluggy

    def _add_problem(self, origin: Origin, stage: str, message: str) -> None:
        problem = PluginProblem(origin, stage, " ".join(message.split()))
        if problem not in self.problems:
            import logging

            self.problems.append(problem)
            logging.getLogger("torchx_specs.plugins").warning("%s", problem)


_manager: PluginManager | None = None


def get_manager() -> PluginManager:
    """Return the manager of this process; the first call creates it."""
    global _manager
    if _manager is None:
        _manager = PluginManager()
    return _manager


def set_manager(manager: PluginManager | None) -> None:
    """Replace the manager of this process; with None, :func:`get_manager` creates a new one."""
    global _manager
    _manager = manager
