"""The base class of schedulers for batch systems, with an index of the submitted apps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from torchx_kit.hosts.api import Host
from torchx_kit.jobs.index import JobEntry, JobIndex
from torchx_kit.jobs.records import JobRecord
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import Scheduler
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.request_checks import RequestRules

if TYPE_CHECKING:
    from torchx_kit.jobs.logs import FileLogs


class DeletableEntry(JobEntry, Protocol):
    """An entry of the index that can be marked as deleted."""

    deleted: bool

    @property
    def record(self) -> str:
        """Path of the app's record."""

    def log_files(self) -> list[str]:
        """Return the paths of all files that the jobs of the app may have written as logs."""


Opts = TypeVar("Opts", bound=Mapping[str, Any])
Entry = TypeVar("Entry", bound=DeletableEntry)


class ClusterScheduler(BuilderWorkspaceMixin, Scheduler[Opts], Generic[Opts, Entry]):
    """A scheduler that knows its apps from an index on this machine.

    Args:
        backend: Name of the scheduler.
        session_name: Name of the session.
        host: The machine with the commands of the batch system and the files of the jobs.
        index: The submitted apps.
    """

    # A role without a resource gets the queue's defaults.
    request_rules = RequestRules(needs_resource=False, needs_entrypoint=True)
    features = SchedulerFeatures(
        secrets=True,
        setup=True,
        time_limit=True,
        logs=True,
        since_until=No("log files contain no times of lines"),
        last=True,
        partial=True,
        log_order=No("log files do not show which line of two files came first"),
        withdrawal=True,
    )

    def __init__(self, backend: str, session_name: str, host: Host, index: JobIndex[Entry]) -> None:
        super().__init__(backend, session_name)
        self._host = host
        self._index = index

    def exists(self, app_id: str) -> bool:
        """Return True if the app exists; query the batch system only if the index lacks the app."""
        entry = self._index.get(app_id)
        return not entry.deleted if entry is not None else self.describe(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """End an app. An app that has ended or does not exist is not an error.

        ``_cancel_existing`` queries an app of the index, so the app is not described before.
        """
        entry = self._index.get(app_id)
        if entry is None:
            super().cancel(app_id)
        elif not entry.deleted:
            self._cancel_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Cancel an app, remove its logs and its record, and hide it from lists."""
        self._cancel_existing(app_id)
        description = self.describe(app_id)
        entry = self._deleted_entry(app_id)
        if entry is not None:
            self._host.remove_files(entry.log_files())
            # The jobs of an app that is still ending write to its record.
            if entry.record and (description is None or is_terminal(description.state)):
                JobRecord(self._host, entry.record).remove()
            entry.deleted = True
            self._index.put(entry)

    def _entry(self, app_id: str) -> Entry | None:
        """Return the index entry of an app; None if the index has none."""
        return self._index.get(app_id)

    def _deleted_entry(self, app_id: str) -> Entry | None:
        """Return the entry of an app that is deleted; None if its deletion needs no entry."""
        return self._entry(app_id)

    @cached_property
    def app_logs(self) -> FileLogs[Any]:
        """Reads the logs of apps."""
        from torchx_kit.jobs.logs import FileLogs

        return FileLogs(self)
