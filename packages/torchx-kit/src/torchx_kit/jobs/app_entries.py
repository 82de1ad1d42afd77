"""Apps whose replicas are separate jobs of a batch system: their entries in the index."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torchx_kit.hosts.api import Host
from torchx_kit.jobs.logs import log_files
from torchx_kit.jobs.records import JobRecord
from torchx_kit.jobs.submitter import GRACE_SECONDS, is_interrupted


class NamedRole(Protocol):
    """A role in the index. ``job_name`` is its name in the names of jobs and logs."""

    job_name: str


RoleEntry = TypeVar("RoleEntry", bound=NamedRole)

#: The reason of replicas that were not submitted; see :attr:`AppEntry.interrupted`.
INTERRUPTED = "the submission was interrupted"


@dataclass
class AppEntry(Generic[RoleEntry]):
    """An app in the index. A subclass sets ``records_folder`` and ``replicas``, and may add fields.

    Attributes:
        records_folder: Name of the directory that contains the records of apps, in the directory of
            the logs.
        app_id: The app's id.
        name: Name of the app.
        folder: Working directory of the jobs, which also contains the logs.
        roles: The roles, in the order of the job script's table of roles.
        submitted: Time of the submission, in epoch seconds; 0 if unknown.
        cancelled: Whether the user cancelled the app.
        deleted: Whether the user deleted the app.
        complete: Whether the submission has ended, so that ``roles`` has the ids of all jobs.
        submitter: The submitting process, from :func:`torchx_kit.jobs.submitter.this_process`.
        interrupted: Whether the submission was interrupted before the first job. Lists leave such
            an app out, so that a sweep submits its element again.
        final: The description of the ended app as a dictionary; None while the app has not ended.
    """

    records_folder: ClassVar[str]

    app_id: str
    name: str
    folder: str
    roles: list[RoleEntry] = field(default_factory=list)
    submitted: float = 0.0
    cancelled: bool = False
    deleted: bool = False
    complete: bool = False
    submitter: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    final: dict[str, Any] | None = None

    def is_abandoned(self, grace: float = GRACE_SECONDS) -> bool:
        """Return whether the submission has not ended, and its process can not continue it.

        Args:
            grace: As for :func:`torchx_kit.jobs.submitter.is_interrupted`.
        """
        has_ended = self.complete or self.cancelled or self.deleted or self.final is not None
        return not has_ended and is_interrupted(self.submitter, self.submitted, grace)

    @property
    def replicas(self) -> dict[str, int]:
        """The number of replicas of each role, by the role's name."""
        raise NotImplementedError

    def log(self, role: int, k: int) -> str:
        """Return the path of a replica's log without its suffix.

        Args:
            role: Index of the role.
            k: Index of the replica in its role.
        """
        return posixpath.join(self.folder, f"{self.app_id}-{self.roles[role].job_name}-{k}")

    def logs(self) -> list[str]:
        """Return the paths of all logs of the app without their suffixes."""
        counts = enumerate(self.replicas.values())
        return [self.log(role, k) for role, count in counts for k in range(count)]

    def log_files(self) -> list[str]:
        """Return the paths of all files that the jobs of the app may have written as logs."""
        return log_files(self.logs())

    def has_report(self, host: Host) -> bool:
        """Return whether a replica has begun, according to the report of its script."""
        return JobRecord(host, self.record).has_reports(self.replicas.values())

    @property
    def record(self) -> str:
        """Path of the app's record."""
        return self.record_path(self.folder, self.app_id)

    @classmethod
    def record_path(cls, folder: str, app_id: str) -> str:
        """Return the path of an app's record.

        Args:
            folder: Working directory of the jobs.
            app_id: The app's id.
        """
        return posixpath.join(folder, cls.records_folder, app_id)
