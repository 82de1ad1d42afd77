"""What plugins give: small frozen records.

A record names its factory as an object or as ``"module:attribute"``; the text form lets a plugin be
listed without importing what it offers. ``origin`` is filled in by the manager.

Every start of the command pays for these classes: a named tuple is made in an eighth of the time of
a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from torchx_specs.errors import PluginError

R = TypeVar("R", bound="Record")


class Origin(NamedTuple):
    """Where a plugin came from."""

    distribution: str = ""
    version: str = ""
    plugin: str = ""
    """Name of its entry point, or under which it was registered."""

    def __str__(self) -> str:
        text = f"{self.distribution} {self.version}".strip()
        return text or self.plugin or "this program"


@dataclass(frozen=True)
class Record:
    """Base of the records; one that adds no field is no dataclass of its own, to start fast."""

    name: str
    factory: Any
    summary: str | Callable[[], str] = ""
    """One line for lists; a callable is asked when the line is shown."""
    origin: Origin = field(default_factory=Origin, compare=False)

    kind: ClassVar[str] = "plugin"

    def load(self) -> Any:
        """Returns the factory itself, importing it if it is named by text.

        Raises:
            PluginError: it cannot be imported; the text names the distribution
        """
        if not isinstance(self.factory, str):
            return self.factory
        return load_object(self.factory, f"{self.kind} '{self.name}' of {self.origin}")

    def summary_text(self) -> str:
        """Returns the line for lists."""
        return self.summary if isinstance(self.summary, str) else self.summary()

    def with_origin(self: R, origin: Origin) -> R:
        """Returns a copy that carries ``origin``, or the record itself if it carries one
        already.
        """
        return self if self.origin != Origin() else replace(self, origin=origin)

    def problem(self) -> str | None:
        """Returns what is wrong with the record, or None."""
        if not isinstance(self.name, str) or not self.name:
            return f"{type(self).__name__} needs a name, got {self.name!r}"
        if isinstance(self.factory, str):
            module, colon, attribute = self.factory.partition(":")
            if not (module and colon and attribute):
                return (
                    f"{type(self).__name__} '{self.name}' names its factory as {self.factory!r},"
                    " which is not 'module:attribute'"
                )
        elif not callable(self.factory):
            return (
                f"{type(self).__name__} '{self.name}' has a factory that cannot be called:"
                f" {self.factory!r}"
            )
        return None


class SchedulerPlugin(Record):
    """A scheduler; ``factory(session_name, **scheduler_params)`` returns it."""

    kind: ClassVar[str] = "scheduler"


class ResourcePlugin(Record):
    """A named resource; ``factory()`` returns a new :class:`~torchx_specs.Resource`."""

    kind: ClassVar[str] = "named resource"


@dataclass(frozen=True)
class ComponentPlugin:
    """A module whose functions (and its sub-modules') are components, under the prefix ``group``
    (none if empty).

    Args:
        group: the prefix; none if empty or beginning with ``_``
        module: dotted name of the module
        replaces_builtins: True hides the components of ``torchx-components`` (what the older
            entry-point group ``torchx.components`` means; a new plugin adds)
    """

    group: str
    module: str
    replaces_builtins: bool = False
    deliberate: bool = field(default=False, compare=False)
    """Set by the manager: the plugin was marked ``tryfirst``, and its components win."""
    origin: Origin = field(default_factory=Origin, compare=False)

    kind: ClassVar[str] = "component group"

    @property
    def name(self) -> str:
        """The group."""
        return self.group

    def with_origin(self, origin: Origin) -> ComponentPlugin:
        """Returns a copy that carries ``origin``, or the record itself if it carries one
        already.
        """
        return self if self.origin != Origin() else replace(self, origin=origin)

    def problem(self) -> str | None:
        """Returns what is wrong with the record, or None."""
        if not isinstance(self.group, str) or not isinstance(self.module, str) or not self.module:
            return (
                "ComponentPlugin needs a group and the name of a module, got"
                f" {self.group!r}, {self.module!r}"
            )
        return None


class TrackerPlugin(Record):
    """A tracker; ``factory(config)`` returns it, ``config`` being a string or None."""

    kind: ClassVar[str] = "tracker"


class CommandPlugin(Record):
    """A sub-command of ``torchx``; ``factory`` is a :class:`click.Command`, or a callable that
    returns one.
    """

    kind: ClassVar[str] = "command"


class WorkspacePlugin(Record):
    """A builder of workspaces; ``factory()`` returns a
    :class:`~torchx_specs.workspace.WorkspaceBuilder`.
    """

    kind: ClassVar[str] = "workspace builder"


class EventHandlerPlugin(Record):
    """A destination of runner events; ``factory()`` returns a :class:`logging.Handler`."""

    kind: ClassVar[str] = "event handler"


def load_object(path: str, owner: str) -> Any:
    """Imports ``module:attribute``.

    Args:
        path: what to import
        owner: whose it is, for the error

    Raises:
        PluginError: the module fails to import or has no such attribute
    """
    import importlib

    module_name, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as e:
        raise PluginError(f"{owner} cannot be loaded from '{path}': {type(e).__name__}: {e}") from e
    return found
