"""Finds plugins, asks their hooks, and keeps one failing plugin from harming the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from torchx_specs.errors import PluginConflictError, nearest
from torchx_specs.hookspecs import HOOKS
from torchx_specs.plugins.entry_points import entry_points, normalize
from torchx_specs.plugins.markers import PROJECT
from torchx_specs.plugins.records import (
    CommandPlugin,
    ComponentPlugin,
    EventHandlerPlugin,
    Origin,
    Record,
    ResourcePlugin,
    SchedulerPlugin,
    TrackerPlugin,
    WorkspacePlugin,
)
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED

if TYPE_CHECKING:
    from pluggy import HookImpl
    from pluggy import PluginManager as Pluggy

R = TypeVar("R", bound="Record[Any]")

#: What a plugin's code may raise that is none of its failures. All else is, whatever it derives
#: from: sys.exit() does no harm here, nor does a panic of a library that is written in Rust.
_INTERRUPTS = (KeyboardInterrupt, GeneratorExit)


class PluginProblem(NamedTuple):
    """Something that went wrong with a plugin."""

    origin: Origin
    stage: str
    """``import``, ``hook`` or ``record``."""
    message: str

    def __str__(self) -> str:
        what = {
            "import": "cannot be imported",
            "hook": "failed in a hook",
            "record": "gave something unusable",
        }.get(self.stage, self.stage)
        name = f" ({self.origin.plugin})" if self.origin.plugin and self.origin.distribution else ""
        return f"plugin {self.origin}{name} {what}: {self.message}"


class Registration(NamedTuple):
    """A plugin that takes part, or is blocked."""

    origin: Origin
    target: str
    """The module it registers."""
    enabled: bool


class Catalog(Mapping[str, R], Generic[R]):
    """The usable records of one hook by name, in the order of the plugins.

    A name that several plugins claim is not part of the mapping: ``catalog.get(name)`` returns None
    and ``catalog[name]`` raises :class:`~torchx_specs.errors.PluginConflictError`. The method
    :meth:`find` is for names that a user gave.

    Args:
        kind: What the records stand for, for messages.

    Attributes:
        conflicts: The claims of each name that several plugins claim.
        overridden: The records that a deliberate override replaced, by name.
        installable: The command that installs a plugin which is not installed, by name.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.conflicts: dict[str, list[R]] = {}
        self.overridden: dict[str, list[R]] = {}
        self.installable: dict[str, str] = {}
        self._records: dict[str, R] = {}
        self._first: dict[str, tuple[R, bool]] = {}

    def add(self, record: R, tryfirst: bool = False) -> None:
        """Add a record, which must come after those of plugins that are asked earlier.

        Args:
            record: The record.
            tryfirst: Whether its plugin deliberately overrides others.
        """
        name = record.name
        if record.install:
            self.installable.setdefault(name, record.install)
            return
        if name not in self._first:
            self._first[name] = record, tryfirst
            self._records[name] = record
            return
        first, deliberate = self._first[name]
        if first == record:
            return  # one registration, seen twice
        if deliberate and not tryfirst:
            self.overridden.setdefault(name, []).append(record)
        else:
            self.conflicts.setdefault(name, [first]).append(record)
            self._records.pop(name, None)

    def find(self, name: str) -> R | None:
        """Return the record of that name, or None if no plugin has it.

        Raises:
            PluginConflictError: Several plugins claim the name.
        """
        if name in self.conflicts:
            raise self._conflict(name)
        return self._records.get(name)

    def names(self) -> list[str]:
        """Return all names in alphabetical order, including those of conflicts."""
        return sorted({*self._records, *self.conflicts})

    def _conflict(self, name: str) -> PluginConflictError:
        claims = " and ".join(str(r.origin) for r in self.conflicts[name])
        example = self.conflicts[name][0].origin.distribution or "NAME"
        return PluginConflictError(
            f"{self.kind} '{name}' is given by {claims}: uninstall one, or block it with"
            f" {ENV_TORCHX_PLUGINS_DISABLED}={example}, or mark the wanted one"
            " @hookimpl(tryfirst=True)"
        )

    def __getitem__(self, name: str) -> R:
        if name in self.conflicts:
            raise self._conflict(name)
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


class PluginManager:
    """The plugins of one environment; can be made many times in one process.

    Args:
        path: folders searched for installed distributions, ``sys.path`` if None
        disabled: distributions or plugin names that must not load, beside those in
            ``$TORCHX_PLUGINS_DISABLED``
        discover: False to start without installed plugins
    """

    def __init__(
        self,
        path: Iterable[str] | None = None,
        disabled: Iterable[str] = (),
        discover: bool = True,
    ) -> None:
        from_env = os.environ.get(ENV_TORCHX_PLUGINS_DISABLED, "").split(",")
        self._disabled = {normalize(d.strip()) for d in (*from_env, *disabled) if d.strip()}
        self._path = None if path is None else list(path)
        self._discover = discover
        self._origins: dict[str, Origin] = {}
        self._catalogs: dict[str, Any] = {}
        self._warned: set[PluginProblem] = set()
        self._pluggy: Pluggy | None = None
        self.problems: list[PluginProblem] = []
        self.registrations: list[Registration] = []

    def register(self, plugin: object, name: str, origin: Origin | None = None) -> None:
        """Adds a plugin by hand: any object with hook implementations.

        Args:
            plugin: a module or object
            name: a name of its own
            origin: whose it is, for messages
        """
        self._register(self._load(), plugin, name, origin or Origin(plugin=name))

    def block(self, names: Iterable[str]) -> None:
        """Leaves out further plugins from now on.

        Args:
            names: distributions or plugin names
        """
        further = {normalize(name) for name in names} - self._disabled
        if further:
            self._disabled |= further
            self._catalogs.clear()
            self.registrations = [
                r._replace(enabled=r.enabled and not self._is_blocked(r.origin))
                for r in self.registrations
            ]

    def _is_blocked(self, origin: Origin) -> bool:
        return not self._disabled.isdisjoint(
            (normalize(origin.distribution), normalize(origin.plugin))
        )

    # -- one typed method a hook

    def schedulers(self) -> Catalog[SchedulerPlugin]:
        """Return the schedulers that apps can run on."""
        return self._schedulers()[0]

    def configurable_schedulers(self) -> Catalog[SchedulerPlugin]:
        """Return the schedulers that ``.torchxconfig`` may have a section for."""
        return self._schedulers()[1]

    def named_resources(self) -> Catalog[ResourcePlugin]:
        """Returns the named resources that plugins give."""
        return self._catalog("torchx_named_resources", ResourcePlugin)

    def trackers(self) -> Catalog[TrackerPlugin]:
        """Returns the trackers."""
        return self._catalog("torchx_trackers", TrackerPlugin)

    def commands(self) -> Catalog[CommandPlugin]:
        """Returns the sub-commands."""
        return self._catalog("torchx_commands", CommandPlugin)

    def workspaces(self) -> Catalog[WorkspacePlugin]:
        """Returns the workspace builders."""
        return self._catalog("torchx_workspaces", WorkspacePlugin)

    def event_handlers(self) -> Catalog[EventHandlerPlugin]:
        """Returns the destinations of events."""
        return self._catalog("torchx_event_handlers", EventHandlerPlugin)

    def components(self) -> tuple[ComponentPlugin, ...]:
        """Returns the component groups; several may share a group."""
        if "torchx_components" not in self._catalogs:
            found = [
                replace(record, deliberate=tryfirst)
                for record, tryfirst in self._collect("torchx_components")
            ]
            self._catalogs["torchx_components"] = tuple(dict.fromkeys(found))
        return cast("tuple[ComponentPlugin, ...]", self._catalogs["torchx_components"])

    # -- machinery

    def _schedulers(self) -> tuple[Catalog[SchedulerPlugin], Catalog[SchedulerPlugin]]:
        if "torchx_schedulers" not in self._catalogs:
            collected = list(self._collect("torchx_schedulers"))
            runnable: Catalog[SchedulerPlugin] = Catalog(SchedulerPlugin.kind)
            configurable: Catalog[SchedulerPlugin] = Catalog(SchedulerPlugin.kind)
            for record, tryfirst in collected:
                if record.runnable:
                    runnable.add(record, tryfirst)
                    configurable.add(record, tryfirst)
            for record, tryfirst in collected:
                if not record.runnable and record.name not in runnable.names():
                    configurable.add(record, tryfirst)
            self._catalogs["torchx_schedulers"] = runnable, configurable
        return cast(
            "tuple[Catalog[SchedulerPlugin], Catalog[SchedulerPlugin]]",
            self._catalogs["torchx_schedulers"],
        )

    def _catalog(self, hook: str, record_type: type[R]) -> Catalog[R]:
        if hook not in self._catalogs:
            catalog: Catalog[R] = Catalog(record_type.kind)
            for record, tryfirst in self._collect(hook):
                catalog.add(record, tryfirst)
            self._catalogs[hook] = catalog
        return cast("Catalog[R]", self._catalogs[hook])

    def _collect(self, hook: str) -> Iterator[tuple[Any, bool]]:
        """Yields each record of a hook with whether it is a deliberate override, the first plugin's
        first.
        """
        caller = getattr(self._load().hook, hook)
        for impl in reversed(caller.get_hookimpls()):
            origin = self._origins.get(impl.plugin_name, Origin(plugin=impl.plugin_name))
            if self._is_blocked(origin):  # blocked after it was imported
                continue
            for record in self._ask(hook, impl, origin):
                yield record.with_origin(origin), impl.tryfirst
        self.warn()

    def _ask(self, hook: str, impl: HookImpl, origin: Origin) -> list[Any]:
        """Returns the usable records of one plugin; called one by one, so that one that raises ends
        only its own.
        """
        records: list[Any] = []
        try:
            given: Any = impl.function()
            record: Any
            for record in () if given is None else given:
                wrong = (
                    record.problem()
                    if isinstance(record, HOOKS[hook])
                    else f"{hook} must yield {HOOKS[hook].__name__}, got {record!r:.100}"
                )
                if wrong:
                    self._problem(origin, "record", wrong)
                else:
                    records.append(record)
        except _INTERRUPTS:
            raise
        except BaseException as e:
            self._problem(origin, "hook", f"{hook}: {type(e).__name__}: {e}")
        return records

    def _load(self) -> Pluggy:
        if self._pluggy is None:
            import pluggy

            from torchx_specs import hookspecs

            self._pluggy = pluggy.PluginManager(PROJECT)
            self._pluggy.add_hookspecs(hookspecs)
            if self._discover:
                self._load_installed(self._pluggy)
        return self._pluggy

    def _load_installed(self, pluggy_manager: Pluggy) -> None:
        import importlib

        found = entry_points(PROJECT, path=self._path)
        # pluggy asks the last one registered first
        for ep in reversed(found):
            origin = Origin(ep.distribution, ep.version, ep.name)
            enabled = not self._is_blocked(origin)
            self.registrations.insert(0, Registration(origin, ep.value, enabled))
            if not enabled:
                continue
            try:
                plugin: Any = importlib.import_module(ep.value.partition(":")[0])
                for part in filter(None, ep.value.partition(":")[2].split(".")):
                    plugin = getattr(plugin, part)
            except _INTERRUPTS:
                raise
            except BaseException as e:
                self._problem(origin, "import", f"{ep.value}: {type(e).__name__}: {e}")
                continue
            self._register(pluggy_manager, plugin, f"{ep.distribution}:{ep.name}", origin)

    def _register(self, pluggy_manager: Pluggy, plugin: object, name: str, origin: Origin) -> None:
        try:
            registered = pluggy_manager.register(plugin, name)
        except Exception as e:
            self._problem(origin, "hook", f"{type(e).__name__}: {e}")
            return
        if registered is not None:
            self._origins[registered] = origin
            self._catalogs.clear()
            for caller in pluggy_manager.get_hookcallers(plugin) or ():
                if not caller.has_spec():
                    hint = nearest(caller.name, HOOKS)
                    self._problem(
                        origin, "hook", f"there is no hook {caller.name};{hint}".rstrip(";")
                    )

    def _problem(self, origin: Origin, stage: str, message: str) -> None:
        problem = PluginProblem(origin, stage, " ".join(message.split()))
        if problem not in self.problems:
            self.problems.append(problem)

    def warn(self) -> None:
        """Logs each problem once, as a warning."""
        for problem in self.problems:
            if problem not in self._warned:
                self._warned.add(problem)
                import logging

                logging.getLogger("torchx_specs.plugins").warning("%s", problem)


_manager: PluginManager | None = None


def get_manager() -> PluginManager:
    """Returns the manager of this process, made when first asked for."""
    global _manager
    if _manager is None:
        _manager = PluginManager()
    return _manager


def set_manager(manager: PluginManager | None) -> None:
    """Replaces the manager of this process; None has a new one made when it is next asked for."""
    global _manager
    _manager = manager
