"""Apps whose replicas are separate jobs of a batch system: their entries in the index."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from torchx_kit.jobs.submitter import GRACE_SECONDS, is_interrupted

RoleEntry = TypeVar("RoleEntry")

#: The reason of replicas that were not submitted; see :attr:`AppEntry.interrupted`.
INTERRUPTED = "the submission was interrupted"


@dataclass
class AppEntry(Generic[RoleEntry]):
    """An app in the index. A subclass sets ``records_folder``, and may add fields.

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
