"""The index of submitted jobs on the user's machine: one small JSON file for each job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import home_path
from torchx_kit.jobs import submission
from torchx_kit.trust import open_trusted
from torchx_specs.errors import BackendError


class JobEntry(Protocol):
    """A dataclass that describes a job."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    app_id: str


E = TypeVar("E", bound=JobEntry)


class JobIndex(Generic[E]):
    """The jobs that this user submitted with the current ``$TORCHX_HOME``.

    Several processes may use the index at the same time, because each write replaces a whole file.

    Args:
        subdirs: The path of the index's folder below ``$TORCHX_HOME``, one name for each level.
        from_dict: Converts the :func:`dataclasses.asdict` of an entry back to the entry. A
            ``TypeError``, ``ValueError`` or ``KeyError`` means that the data is not a valid entry.
    """

    def __init__(self, *subdirs: str, from_dict: Callable[[dict[str, Any]], E]) -> None:
        self._folder = home_path(*subdirs)
        self._from_dict = from_dict

    def use_host(self, name: str) -> None:
        """Use the folder of the jobs that were submitted on a host; ids of hosts may be equal."""
        if name:
            self._folder += f"@{name}"

    def get(self, app_id: str) -> E | None:
        """Return the entry of a job; None if it is missing or not valid."""
        if os.sep in app_id or app_id in ("", ".", ".."):
            return None
        return self._read(f"{app_id}.json")

    def put(self, entry: E) -> None:
        """Add the entry of a job, or replace it.

        Raises:
            BackendError: The index is not writable.
        """
        import json  # imported here, so that start-up does not load it

        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            path = os.path.join(self._folder, f"{entry.app_id}.json")
            write_atomically(path, json.dumps(asdict(entry)))
        except OSError as e:
            raise BackendError(
                f"cannot write to {self._folder}: {e.strerror or e};"
                " set TORCHX_HOME to a directory that you can write to"
            ) from None

    def announce(self, entry: E) -> None:
        """Add the entry of a job that is about to be submitted, and announce the app.

        See :mod:`torchx_kit.jobs.submission`.

        Raises:
            BackendError: The index is not writable.
        """
        self.put(entry)
        submission.announce(entry.app_id)

    def withdraw(self, app_id: str) -> None:
        """Remove an announced entry: no job of the app exists.

        Raises:
            BackendError: The entry cannot be removed.
        """
        self.remove(app_id)
        submission.withdraw()

    def remove(self, app_id: str) -> None:
        """Remove the entry of a job; a missing entry is not an error.

        Raises:
            BackendError: The entry cannot be removed.
        """
        try:
            os.unlink(os.path.join(self._folder, f"{app_id}.json"))
        except FileNotFoundError:
            pass
        except OSError as e:
            raise BackendError(
                f"cannot remove {app_id} from {self._folder}: {e.strerror}"
            ) from None

    def entries(self, prefix: str = "") -> Iterator[E]:
        """Yield the valid entries of all jobs, sorted by file name.

        Args:
            prefix: Only jobs whose id begins with this text.
        """
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        for name in names:
            if name.startswith(prefix) and name.endswith(".json"):
                entry = self._read(name)
                if entry is not None:
                    yield entry

    def _read(self, name: str) -> E | None:
        import json  # imported here, so that start-up does not load it

        try:
            with open_trusted(os.path.join(self._folder, name)) as file:
                return self._from_dict(json.load(file))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None


def entry_from_dict(entry_type: type[E], role_type: type[Any], data: dict[str, Any]) -> E:
    """Convert a dictionary that :func:`dataclasses.asdict` made back to the entry with its roles.

    Unknown keys of the entry, which a later version may have written, are ignored.

    Args:
        entry_type: The dataclass of the entry.
        role_type: The dataclass of the items in the entry's field ``roles``.
        data: The dictionary.

    Raises:
        TypeError: A field is missing, or a role has an unknown key.
    """
    known = {key: value for key, value in data.items() if key in entry_type.__dataclass_fields__}
    known["roles"] = [role_type(**role) for role in data.get("roles", ())]
    return entry_type(**known)
