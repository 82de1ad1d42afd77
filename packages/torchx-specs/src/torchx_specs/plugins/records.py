"""The frozen records that plugins yield.

A record names its factory as an object or as ``"module:attribute"``. With the text form, listing a
plugin imports nothing. The manager fills in ``origin``.

Every start of the command defines these classes, and the decorator ``dataclass`` is slow. Therefore
records without fields of their own are plain subclasses, and :class:`Origin` is a named tuple.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from torchx_specs.errors import PluginError

if TYPE_CHECKING:
    from torchx_specs.plugins import factories

F = TypeVar("F")

#: The distributions of this project, whose plugins older plugins replace by name.
BUILTIN_DISTRIBUTIONS = frozenset((
    "torchx",
    "torchx-apps", "torchx-cli", "torchx-components", "torchx-dashboard", "torchx-functions",
    "torchx-host-ssh", "torchx-k8s-supervisor", "torchx-kit", "torchx-log-sinks", "torchx-notebook",
    "torchx-notify", "torchx-otel", "torchx-resilience", "torchx-resources-aws", "torchx-runner",
    "torchx-sched-aws",
    "torchx-sched-docker", "torchx-sched-htcondor", "torchx-sched-k8s", "torchx-sched-local",
    "torchx-sched-lsf", "torchx-sched-mcad", "torchx-sched-sge", "torchx-sched-slurm",
    "torchx-specs", "torchx-sweep", "torchx-testing", "torchx-tracker", "torchx-tracker-fsspec",
    "torchx-tracker-mlflow", "torchx-tracker-wandb", "torchx-workspace-docker",
))  # fmt: skip


class Origin(NamedTuple):
    """The distribution that a plugin belongs to."""

    distribution: str = ""
    version: str = ""
    plugin: str = ""
    """Name of the plugin's entry point, or the name that was given to ``register``."""

    def __str__(self) -> str:
        text = f"{self.distribution} {self.version}".strip()
        return text or self.plugin or "this program"

    @property
    def is_builtin(self) -> bool:
        """Whether the distribution is one of this project."""
        return self.distribution.replace("_", "-") in BUILTIN_DISTRIBUTIONS


@dataclass(frozen=True)
class Record(Generic[F]):
    """Base class of the records.

    Args:
        name: The name that users give, for example in ``torchx run -s NAME``.
        factory: Callable that creates the scheduler, tracker and so on, or
            ``"module:attribute"`` of this callable. Its signature is a protocol in
            :mod:`torchx_specs.plugins.factories`.
        summary: One line for lists, or a callable that returns it when the list is shown.
        origin: The distribution of the plugin; the manager sets this field.
        install: For a plugin that is not installed: the command that installs it. Such a record has
            an empty ``factory`` and is not listed; if a user gives the name, the error message
            shows the command.
        overrides_builtins: Whether the record wins over a built-in plugin of the same name. True
            for plugins in the older entry-point groups, which have this effect in older releases;
            the hook of a new plugin is marked ``@hookimpl(tryfirst=True)`` instead.
    """

    name: str
    factory: F | str
    summary: str | Callable[[], str] = ""
    origin: Origin = field(default_factory=Origin, compare=False)
    install: str = ""
    overrides_builtins: bool = field(default=False, compare=False)

    kind: ClassVar[str] = "plugin"
    """The noun for a record in messages: the keyword ``kind`` of a subclass's class statement."""

    def __init_subclass__(cls, kind: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = kind or cls.kind

    def load(self) -> Any:
        """Return the factory; import it if ``factory`` is ``"module:attribute"``.

        Raises:
            PluginError: The factory cannot be imported; the message names the distribution.
        """
        if not isinstance(self.factory, str):
            return self.factory
        return load_object(self.factory, f"{self.kind} '{self.name}' of {self.origin}")

    def summary_text(self) -> str:
        """Return the summary as text."""
        return self.summary if isinstance(self.summary, str) else self.summary()

    def problem(self) -> str | None:
        """Return an error message if the record is invalid, else None."""
        if not isinstance(self.name, str) or not self.name:
            return f"{type(self).__name__} needs a name, got {self.name!r}"
        if self.install:
            return None
        record, factory = f"{type(self).__name__} '{self.name}'", self.factory
        if isinstance(factory, str):
            module, _, attribute = factory.partition(":")
            if not (module and attribute):
                return f"{record} names its factory as {factory!r}, which is not 'module:attribute'"
        elif not callable(factory):
            return f"{record} has a factory that cannot be called: {factory!r}"
        return None


class SchedulerPlugin(Record["factories.SchedulerFactory"], kind="scheduler"):
    """The plugin record of a scheduler."""

    #: False if users can only configure the scheduler's options, and not run apps on it.
    runnable: ClassVar[bool] = True


class OptionsOnlySchedulerPlugin(SchedulerPlugin):
    """The record of a scheduler that has a section in ``.torchxconfig``, but cannot run apps."""

    runnable: ClassVar[bool] = False


class ResourcePlugin(Record["factories.ResourceFactory"], kind="named resource"):
    """The plugin record of a named resource."""


@dataclass(frozen=True)
class ComponentPlugin:
    """The record of a module whose functions, also in its sub-modules, are components.

    Args:
        group: The prefix of the components' names; no prefix if empty or beginning with ``_``.
        module: Dotted name of the module. It may be empty if ``read_file`` is given.
        replaces_builtins: Whether to hide the built-in components. True for plugins in the older
            entry-point group ``torchx.components``, which have this effect; new plugins should only
            add components.
        builtin: Whether these are the components that come with TorchX.
        read_file: Reads component files that are not on this machine, for
            ``torchx run PATH:FUNCTION``.
    """

    group: str
    module: str = ""
    replaces_builtins: bool = False
    builtin: bool = False
    read_file: factories.ComponentFileReader | None = None
    deliberate: bool = field(default=False, compare=False)
    """Whether the hook is marked ``tryfirst``, so that its components override others."""
    origin: Origin = field(default_factory=Origin, compare=False)

    kind: ClassVar[str] = "component group"

    @property
    def name(self) -> str:
        """Return the group."""
        return self.group

    def problem(self) -> str | None:
        """Return an error message if the record is invalid, else None."""
        named = isinstance(self.group, str) and isinstance(self.module, str)
        if named and (self.module or self.read_file):
            return None
        given = f"{self.group!r}, {self.module!r}"
        return f"ComponentPlugin needs a group and the name of a module, got {given}"


class TrackerPlugin(Record["factories.TrackerFactory"], kind="tracker"):
    """The plugin record of a tracker."""


class CommandPlugin(Record["factories.CommandFactory"], kind="command"):
    """The plugin record of a sub-command of ``torchx``."""


class WorkspacePlugin(Record["factories.WorkspaceFactory"], kind="workspace builder"):
    """The plugin record of a builder of workspaces."""


class PrunerPlugin(Record["factories.PrunerFactory"], kind="pruner"):
    """The plugin record of a function that finds unused data."""


class EventHandlerPlugin(Record["factories.EventHandlerFactory"], kind="event handler"):
    """The plugin record of a destination of the runner's events."""


class CheckPlugin(Record["factories.CheckFactory"], kind="check"):
    """The record of a check of ``torchx doctor``; its name is ``SUBJECT:CHECK``."""


#: The name of the record whose factory serves all log sinks, or all notifiers.
ALL = "*"


class LogSinkPlugin(
    Record["factories.LogSinkFactory | factories.LogCopiesFactory"], kind="log sink"
):
    """The record of a place for copies of logs; its name is the scheme of the place's URLs.

    The factory is a :class:`~torchx_specs.plugins.factories.LogSinkFactory`. The factory of the
    record :data:`ALL` is a :class:`~torchx_specs.plugins.factories.LogCopiesFactory`.
    """


class SupervisorPlugin(Record["factories.SupervisorFactory"], kind="supervisor"):
    """The record of a supervisor; its name is the name of the scheduler that uses it."""


class HostPlugin(Record["factories.HostFactory"], kind="kind of host"):
    """The record of a way to reach the machines of a cluster."""


class NotifierPlugin(
    Record["factories.NotifierFactory | factories.DeliveriesFactory"], kind="notifier"
):
    """The plugin record of a destination of notifications that jobs have ended.

    The factory is a :class:`~torchx_specs.plugins.factories.NotifierFactory`. The factory of the
    record :data:`ALL` is a :class:`~torchx_specs.plugins.factories.DeliveriesFactory`.
    """


def load_object(path: str, owner: str) -> Any:
    """Import ``module:attribute`` and return it; the message of a PluginError names ``owner``."""
    try:
        return import_object(path)
    except (Exception, SystemExit) as e:
        raise PluginError(f"{owner} cannot be loaded from '{path}': {error_text(e)}") from e


def error_text(error: BaseException) -> str:
    """Return an error with its type; if a distribution of TorchX is missing, how to install it."""
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    distribution = name.replace("_", "-")
    install = f"; run: pip install {distribution}" if distribution in BUILTIN_DISTRIBUTIONS else ""
    return f"{type(error).__name__}: {error}{install}"


def import_object(path: str) -> Any:
    """Import ``module`` or ``module:attribute``, and return it; any exception is passed on."""
    module_name, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in filter(None, attribute.split(".")):
        found = getattr(found, part)
    return found
