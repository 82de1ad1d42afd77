"""The records of one hook, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from torchx_specs.errors import PluginConflictError
from torchx_specs.plugins.records import Record
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED

R = TypeVar("R", bound="Record[Any]")


def _overrides(record: Record[Any], tryfirst: bool, other: Record[Any], other_first: bool) -> bool:
    """Return whether a record wins over another record of the same name."""
    if tryfirst != other_first:
        return tryfirst
    return record.overrides_builtins and other.origin.is_builtin


class Catalog(Mapping[str, R], Generic[R]):
    """The usable records of one hook by name, in the order of the plugins.

    If several plugins yield the same name, the name is not part of the mapping:
    ``catalog.get(name)`` returns None, and ``catalog[name]`` raises
    :class:`~torchx_specs.errors.PluginConflictError`. Look up a name that a user gave with
    :meth:`find`, which also raises this error.

    Args:
        kind: Kind of the records (``scheduler``), for error messages.
        records: Pairs of a record and whether its plugin deliberately overrides other plugins.

    Attributes:
        conflicts: The records of each name that several plugins yield.
        overridden: The records that lost their name to another record, by name. A hook that is
            marked ``tryfirst`` wins over all others; a plugin in an older entry-point group wins
            over a built-in plugin.
        installable: Commands that install missing plugins, by the name of the plugin.
    """

    def __init__(self, kind: str, records: Iterable[tuple[R, bool]] = ()) -> None:
        self.kind = kind
        self.conflicts: dict[str, list[R]] = {}
        self.overridden: dict[str, list[R]] = {}
        self.installable: dict[str, str] = {}
        self._first: dict[str, tuple[R, bool]] = {}
        for record, tryfirst in records:
            self.add(record, tryfirst)

    def add(self, record: R, tryfirst: bool = False) -> None:
        """Add a record; records must be added in the order of the plugins."""
        name = record.name
        if record.install:
            self.installable.setdefault(name, record.install)
            return
        if name not in self._first:
            self._first[name] = record, tryfirst
            return
        first, deliberate = self._first[name]
        if first == record:
            return
        if _overrides(first, deliberate, record, tryfirst):
            self.overridden.setdefault(name, []).append(record)
        elif _overrides(record, tryfirst, first, deliberate):
            self._first[name] = record, tryfirst
            self.overridden.setdefault(name, []).append(first)
        else:
            self.conflicts.setdefault(name, [first]).append(record)

    def find(self, name: str) -> R | None:
        """Return the record named ``name``; None if no plugin yields it, an error if several do."""
        if name not in self.conflicts:
            return self._first[name][0] if name in self._first else None
        problem, remedy = self.conflict(name)
        raise PluginConflictError(f"{problem}: {remedy}")

    def conflict(self, name: str) -> tuple[str, str]:
        """Return the message and the remedy for a name in conflict."""
        claims = self.conflicts[name]
        disabled = f"{claims[0].origin.distribution or 'DISTRIBUTION'}:{name}"
        remedy = (
            f"uninstall one, or disable one with {ENV_TORCHX_PLUGINS_DISABLED}={disabled}, or mark"
            " the wanted one @hookimpl(tryfirst=True)"
        )
        owners = " and ".join(str(record.origin) for record in claims)
        return f"{self.kind} '{name}' is given by {owners}", remedy

    def install_hint(self, name: str) -> str:
        """Return ``; run: COMMAND`` for a plugin that a command can install, or an empty string."""
        command = self.installable.get(name)
        return f"; run: {command}" if command else ""

    def names(self) -> list[str]:
        """Return all names in the order of the plugins, including names in conflict."""
        return list(self._first)

    def __getitem__(self, name: str) -> R:
        record = self.find(name)
        if record is None:
            raise KeyError(name)
        return record

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._first if name not in self.conflicts)

    def __len__(self) -> int:
        return len(self._first) - len(self.conflicts)
