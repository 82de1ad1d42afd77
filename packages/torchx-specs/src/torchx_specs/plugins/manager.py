"""The plugin manager: loads the installed plugins, calls their hooks, and isolates failures."""

from __future__ import annotations

import importlib
import os
import threading
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


class _Loaded:
    """Plugins that are registered with pluggy.

    Attributes:
        pluggy: The manager of pluggy.
        origins: The origin of each registered plugin, by its name.
    """

    def __init__(self) -> None:
        from torchx_specs.plugins.hook_search import HookSearch  # imports pluggy

        self.pluggy = HookSearch(PROJECT)
        self.pluggy.add_hookspecs(hookspecs)
        self.origins: dict[str, Origin] = {}

    def register(self, plugin: object, name: str, origin: Origin) -> Iterator[PluginProblem]:
        """Register a plugin; yield what is wrong with it."""
        try:
            registered = self.pluggy.register(plugin, name)
        except Exception as e:
            yield _problem(origin, "hook", records.error_text(e))
            return
        if registered is not None:
            self.origins[registered] = origin
            for hook in sorted(vars(self.pluggy.hook).keys() - HOOKS):
                if any(i.plugin is plugin for i in getattr(self.pluggy.hook, hook).get_hookimpls()):
                    text = f"there is no hook {hook};{nearest(hook, HOOKS)}"
                    yield _problem(origin, "hook", text.rstrip(";"))


class PluginManager:
    """Loads plugins and collects their records; a process may create several managers.

    Threads may share a manager: no thread sees plugins or records before all are there. Plugins are
    imported, and hooks called, without a lock, because another thread may be importing the same
    module, and wait for this manager. So threads that need the plugins first at the same time each
    do so, and the results of one of them are kept.

    Each plugin's hook is called separately. If a plugin fails to import, raises in a hook, or
    yields an invalid record, a :class:`PluginProblem` is added to ``problems``; other plugins are
    not affected.

    Args:
        path: Folders to search for installed distributions; ``sys.path`` if None.
        disabled: Distributions or plugin names that are not loaded, and single records, such as
            ``torchx-cli:status``, in addition to those in ``$TORCHX_PLUGINS_DISABLED``.
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
        self._lock = threading.Lock()  # is not held while code of plugins runs
        self._loaded: _Loaded | None = None
        self._added: list[tuple[object, str, Origin]] = []
        # A collection of records belongs to the plugins at its start, so a change of the plugins
        # replaces the dict.
        self._collected: dict[str, list[tuple[Any, bool]]] = {}
        self.problems: list[PluginProblem] = []
        self._installed: list[tuple[Origin, str]] = []

    def register(self, plugin: object, name: str, origin: Origin | None = None) -> None:
        """Add a plugin that is not installed: a module, or another object with hooks.

        Error messages name the plugin by its origin. A name that is in use is one of ``problems``,
        unless the same plugin has it.
        """
        problems: list[PluginProblem] = []
        with self._lock:
            if any(known is plugin and used == name for known, used, _ in self._added):
                return
            self._added.append((plugin, name, origin or Origin(plugin=name)))
            if self._loaded is not None:
                problems += self._loaded.register(*self._added[-1])
            self._collected = {}
        self._report(problems)
        self._load()

    def block(self, names: Iterable[str]) -> None:
        """Block more plugins or records from now on; ``names`` as the argument ``disabled``."""
        added = {normalize(name) for name in names}
        with self._lock:
            if not added <= self._disabled:
                self._disabled = self._disabled | added
                self._collected = {}

    @property
    def registrations(self) -> list[Registration]:
        """The installed plugins, including blocked ones; empty before the plugins are loaded."""
        return [Registration(o, target, not self._is_blocked(o)) for o, target in self._installed]

    def _is_blocked(self, origin: Origin, record: str = "") -> bool:
        """Return whether a plugin is blocked, or its record with the name ``record``."""
        end = f":{record}" if record else ""
        names = (normalize(owner + end) for owner in (origin.distribution, origin.plugin) if owner)
        return not self._disabled.isdisjoint(names)

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
    supervisors = _catalog_method(records.SupervisorPlugin)
    hosts = _catalog_method(records.HostPlugin)

    def components(self) -> tuple[records.ComponentPlugin, ...]:
        """Return the component groups; several plugins may share a group."""
        found = self._records("torchx_components")
        return tuple(dict.fromkeys(replace(group, deliberate=first) for group, first in found))

    # The following methods load plugins and collect their records.

    def _records(self, hook: str) -> list[tuple[Any, bool]]:
        """Return pairs of a record and whether the record deliberately overrides others."""
        found = self._collected.get(hook)
        if found is None:
            loaded, collected = self._load(), self._collected
            impls = reversed(getattr(loaded.pluggy.hook, hook).get_hookimpls())
            found = [pair for impl in impls for pair in self._records_of(hook, impl, loaded)]
            if loaded is self._loaded:
                return collected.setdefault(hook, found)
        return found

    def _records_of(self, hook: str, impl: HookImpl, loaded: _Loaded) -> Iterator[tuple[Any, bool]]:
        """Yield the valid records of one plugin, up to an exception that its hook raises."""
        origin = loaded.origins.get(impl.plugin_name, Origin(plugin=impl.plugin_name))
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
                    self._report([_problem(origin, "record", problem)])
                    continue
                if record.origin == Origin():  # a bridge sets the origin of the bridged plugin
                    record = replace(record, origin=origin)
                if not self._is_blocked(record.origin, record.name):
                    yield record, impl.tryfirst
        except _INTERRUPTS:
            raise
        except BaseException as e:
            self._report([_problem(origin, "hook", f"{hook}: {records.error_text(e)}")])

    def _load(self) -> _Loaded:
        """Return the plugins, which the first call imports.

        While a plugin's module is being imported, its own code may call this method. Such a call
        gets the other plugins, which are not kept.
        """
        if self._loaded is not None:
            return self._loaded
        entries = entry_points(PROJECT, path=self._path) if self._discover else []
        installed = [(Origin(ep.distribution, ep.version, ep.name), ep.value) for ep in entries]
        problems: list[PluginProblem] = []
        imported: list[tuple[object, str, Origin]] = []
        is_complete = True
        # Register in reverse order, because pluggy calls the last registered plugin first.
        for origin, target in reversed(installed):
            if self._is_blocked(origin):
                continue
            try:
                if _is_being_imported(target):
                    is_complete = False
                else:
                    name = f"{origin.distribution}:{origin.plugin}"
                    imported.append((import_object(target), name, origin))
            except _INTERRUPTS:
                raise
            except BaseException as e:
                message = f"{target}: {records.error_text(e)}"
                problems.append(_problem(origin, "import", message))
        with self._lock:
            if self._loaded is not None:
                return self._loaded
            loaded = _Loaded()
            for plugin in (*imported, *self._added):
                problems += loaded.register(*plugin)
            if is_complete:
                self._loaded, self._installed = loaded, installed
                self._collected = {}
        self._report(problems)
        return loaded

    def _report(self, problems: Iterable[PluginProblem]) -> None:
        """Add and log the problems that are new."""
        for problem in problems:
            with self._lock:
                is_new = problem not in self.problems
                self.problems += [problem] if is_new else []
            if is_new:
                import logging

                logging.getLogger("torchx_specs.plugins").warning("%s", problem)


def _problem(origin: Origin, stage: str, message: str) -> PluginProblem:
    return PluginProblem(origin, stage, " ".join(message.split()))


def _is_being_imported(target: str) -> bool:
    """Import the module of ``module:attribute``; return True if this thread is importing it."""
    module = importlib.import_module(target.partition(":")[0])
    return bool(getattr(module.__spec__, "_initializing", False))


_manager_lock = threading.Lock()
_manager: PluginManager | None = None


def get_manager() -> PluginManager:
    """Return the manager of this process; the first call creates it."""
    global _manager
    with _manager_lock:
        if _manager is None:
            _manager = PluginManager()
        return _manager


def set_manager(manager: PluginManager | None) -> None:
    """Replace the manager of this process; with None, :func:`get_manager` creates a new one."""
    global _manager
    _manager = manager
