"""The index of submitted apps: ``$TORCHX_HOME/<scheduler>/apps`` on the user's machine.

An array of apps has one entry. One of its elements gets its own entry only when it is cancelled or
deleted, or when a query shows its end; until then, its entry is made from the entry of the array.
If the batch system chooses the ids of apps, a scheduler uses a subclass of :class:`Entry`.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import home_path
from torchx_kit.jobs.arrays import element_id, split_element_id
from torchx_kit.jobs.logs import log_files
from torchx_kit.jobs.submitter import GRACE_SECONDS, is_interrupted
from torchx_kit.trust import open_trusted
from torchx_specs.errors import BackendError

#: The reason of replicas that were not submitted; see :attr:`Entry.interrupted`.
INTERRUPTED = "the submission was interrupted"
#: The message of an app whose submission has not ended.
SUBMITTING = "the submission has not ended"


@dataclass
class RoleEntry:
    """A role of a submitted app.

    Attributes:
        name: The role's name.
        job_name: Name of the role in the names of jobs and logs.
        num_replicas: Number of replicas.
        jobs: Ids of the role's jobs; an empty string for a job that is not submitted yet. A role
            has one job for each replica, or one job whose tasks are the replicas.
    """

    name: str
    job_name: str
    num_replicas: int
    jobs: list[str] = field(default_factory=list)


@dataclass
class Entry:
    """An app, an array of apps, or an element of an array in the index.

    Attributes:
        app_id: The app's id.
        name: Name of the app.
        folder: Working directory of the jobs, which also contains the logs.
        record: Path of the app's record (:mod:`torchx_kit.jobs.records`).
        roles: The roles, in the order of the job script's table of roles.
        submitted: Time of the submission, in epoch seconds; 0 for an app that the index lacks.
        cancelled: Whether the user cancelled the app.
        deleted: Whether the user deleted the app.
        complete: Whether the submission has ended, so that ``roles`` has the ids of all jobs.
        submitter: The submitting process, from :func:`torchx_kit.jobs.submitter.this_process`.
        held: Whether the submission holds the jobs until all of them are accepted.
        interrupted: Whether the submission was interrupted before the first job. Lists leave such
            an app out, so that a sweep submits its element again.
        final: The description of the ended app as a dictionary; None while the app has not ended.
        names: The names of the elements' apps if this is an array; empty for other apps.
        element: Index of the element in its array; None for any other app.
    """

    app_id: str
    name: str
    folder: str
    record: str
    roles: list[RoleEntry] = field(default_factory=list)
    submitted: float = 0.0
    cancelled: bool = False
    deleted: bool = False
    complete: bool = False
    submitter: dict[str, Any] = field(default_factory=dict)
    held: bool = False
    interrupted: bool = False
    final: dict[str, Any] | None = None
    names: list[str] = field(default_factory=list)
    element: int | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """Convert the result of :func:`dataclasses.asdict` back to the entry.

        Raises:
            TypeError: A field is missing or unknown.
            KeyError: The data has no roles.
        """
        return cls(**{**data, "roles": [RoleEntry(**role) for role in data["roles"]]})

    @property
    def has_ended(self) -> bool:
        """Whether the submission has ended."""
        return self.complete or self.cancelled or self.deleted or self.final is not None

    def is_abandoned(self) -> bool:
        """Return whether the submission has not ended, and its process can not continue it."""
        return not self.has_ended and is_interrupted(self.submitter, self.submitted, GRACE_SECONDS)

    @property
    def jobs(self) -> list[str]:
        """Ids of all jobs that are known to be submitted."""
        return [job for role in self.roles for job in role.jobs if job]

    @property
    def replicas(self) -> dict[str, int]:
        """The number of replicas of each role, by the role's name."""
        return {role.name: role.num_replicas for role in self.roles}

    @staticmethod
    def split_id(app_id: str) -> tuple[str, int | None]:
        """Return the array id and the index in an app id; any other app has the index None."""
        return split_element_id(app_id)

    def element_id(self, index: int) -> str:
        """Return the id of an element of this array."""
        return element_id(self.app_id, index)

    def confirmed(self) -> Entry:
        """Return the entry of an app that the batch system has accepted, with its final id."""
        return self

    def elements(self, own: Mapping[str, Entry]) -> list[Entry]:
        """Return the entries of the elements of this array that were not deleted.

        Args:
            own: The entries that single elements have in the index, by app id.
        """
        made = (self.make_element(index) for index in range(len(self.names)))
        found = (element.merged(own.get(element.app_id)) for element in made)
        return [element for element in found if not element.deleted]

    def merged(self, own: Entry | None) -> Entry:
        """Return the entry of an element, with the data of its own entry in the index, if any."""
        if own is None:
            return self
        # The element may have been cancelled during the submission of the array.
        roles = own.roles if own.complete else self.roles
        is_complete = own.complete or self.complete
        return replace(own, deleted=own.deleted or self.deleted, roles=roles, complete=is_complete)

    def make_element(self, index: int) -> Entry:
        """Return the entry of an element of this array, made from the entry of the array."""
        return replace(
            self,
            app_id=self.element_id(index),
            name=self.names[index],
            record=posixpath.join(self.record, str(index)),
            names=[],
            element=index,
        )

    def log(self, role: int, k: int) -> str:
        """Return the path of a replica's log without its suffix.

        Args:
            role: Index of the role.
            k: Index of the replica in its role.
        """
        return posixpath.join(self.folder, f"{self.app_id}-{self.roles[role].job_name}-{k}")

    def log_files(self) -> list[str]:
        """Return the paths of all files that the jobs of the app may have written as logs."""
        apps = self.elements({}) if self.names else [self]
        return log_files(
            app.log(number, k)
            for app in apps
            for number, role in enumerate(app.roles)
            for k in range(role.num_replicas)
        )


class Index:
    """The apps that this user submitted with the current ``$TORCHX_HOME``: one small file for each.

    Several processes may use the index at the same time, because each write replaces a whole file.

    Args:
        backend: Name of the scheduler.
        entry_type: The class of the entries.
        host: Name of the host of the apps, empty for this machine; ids of two hosts may be equal.
    """

    def __init__(self, backend: str, entry_type: type[Entry] = Entry, host: str = "") -> None:
        self._folder = home_path(backend, f"apps@{host}" if host else "apps")
        self.entry_type = entry_type

    def get(self, app_id: str) -> Entry | None:
        """Return the entry of an app; None if it is missing or not valid."""
        if os.sep in app_id or app_id in ("", ".", ".."):
            return None
        own = self._read(f"{app_id}.json")
        array_id, index = self.entry_type.split_id(app_id)
        array = self._read(f"{array_id}.json") if index is not None else None
        if array is None or index is None or index >= len(array.names):
            return own
        return array.make_element(index).merged(own)

    def own_elements(self, array: Entry) -> dict[str, Entry]:
        """Return the entries that single elements of an array have, by app id."""
        prefix = posixpath.commonprefix([array.element_id(0), array.element_id(1)])
        return {entry.app_id: entry for entry in self.entries(prefix)}

    def put(self, entry: Entry) -> None:
        """Add the entry of an app, or replace it.

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

    def confirm(self, entry: Entry) -> Entry:
        """Replace the announced entry of an accepted app, and return the new entry."""
        found = replace(entry.confirmed(), complete=True)
        self.put(found)
        if found.app_id != entry.app_id:
            self.remove(entry.app_id)
        return found

    def remove(self, app_id: str) -> None:
        """Remove the entry of an app; a missing entry is not an error.

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

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the valid entries of all apps, sorted by file name.

        Args:
            prefix: Only apps whose id begins with this text.
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

    def _read(self, name: str) -> Entry | None:
        import json  # imported here, so that start-up does not load it

        try:
            with open_trusted(os.path.join(self._folder, name)) as file:
                return self.entry_type.from_dict(json.load(file))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
