"""The index of submitted apps, and the record that each app keeps of itself.

The index is in ``$TORCHX_HOME/lsf`` on the user's machine. The record is the directory
``.torchx-lsf/<app id>`` beside the logs, because LSF's hosts may not see the user's home directory.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.index import JobIndex, entry_from_dict
from torchx_kit.jobs.records import JobRecord
from torchx_sched_lsf.script import RECORDS

#: Name of the submission script in the record. The script copies itself to the file ``script`` in
#: the record; the jobs run this copy.
SCRIPT = "torchx-bsub.sh"

# Time limit of a submission, and the additional time for each replica of the app.
_SUBMISSION_SECONDS = 600.0
_REPLICA_SECONDS = 10.0


@dataclass
class RoleEntry:
    """A role of a submitted app.

    Attributes:
        name: The role's name.
        job_name: The role's name in the names of jobs.
        jobs: Ids of the replicas' jobs; empty strings for replicas that are not submitted yet.
    """

    name: str
    job_name: str
    jobs: list[str]


@dataclass
class Entry:
    """An app in the index.

    Attributes:
        app_id: The app's id.
        name: Name of the app.
        folder: Working directory of the jobs, which also contains the logs.
        submitted: Time of the submission, in epoch seconds.
        roles: The roles, in the order of the script's table.
        cancelled: Whether the user cancelled the app.
        deleted: Whether the user deleted the app.
        complete: Whether the submission has ended, so that ``roles`` has the ids of all jobs.
        final: The description of the ended app as a dictionary; None while the app has not ended.
    """

    app_id: str
    name: str
    folder: str
    submitted: float = 0.0
    roles: list[RoleEntry] = field(default_factory=list)
    cancelled: bool = False
    deleted: bool = False
    complete: bool = True
    final: dict[str, Any] | None = None

    @property
    def record(self) -> str:
        """Path of the app's record."""
        return record_path(self.folder, self.app_id)

    @property
    def submission_seconds(self) -> float:
        """How long the submission may take, in seconds."""
        return _SUBMISSION_SECONDS + _REPLICA_SECONDS * sum(len(role.jobs) for role in self.roles)

    @property
    def submission_deadline(self) -> float:
        """Time after which the submission has ended or was interrupted, in epoch seconds."""
        return self.submitted + self.submission_seconds

    @property
    def jobs(self) -> list[str]:
        """Ids of all jobs that are known to be submitted."""
        return [job for role in self.roles for job in role.jobs if job]


class Index(JobIndex[Entry]):
    """The apps that this user submitted with the current ``$TORCHX_HOME``."""

    def __init__(self) -> None:
        from_dict = partial(entry_from_dict, Entry, RoleEntry)
        super().__init__("lsf", "apps", from_dict=from_dict)


class LsfRecord(JobRecord):
    """The record of one app.

    In addition to the files of :class:`torchx_kit.jobs.records.JobRecord` it has:

    - ``jobs``: role, replica and id of every job that LSF has accepted, one line for each job.
    - ``submitted``: how the submission ended: ``all``, ``failed`` (a replica failed before the last
      job was submitted), ``refused`` or ``cancelled``. The file is missing during the submission.
    - ``cancelled``: exists once the user cancelled the app; it also stops the submission.
    - ``bsub.err``: messages of the last bsub.
    """

    def __init__(self, host: Host, entry: Entry) -> None:
        super().__init__(host, entry.record)

    def cancel(self) -> None:
        """Write that the user cancelled the app; do nothing if the record is missing."""
        try:
            self.host.write(posixpath.join(self.path, "cancelled"), "")
        except HostFileError:
            pass  # without a record, there is no script that would read the file

    def is_cancelled(self) -> bool:
        """Return whether the user cancelled the app."""
        return self.host.exists(posixpath.join(self.path, "cancelled"))

    def submission(self) -> str:
        """Return how the submission ended, or an empty string if it has not ended."""
        return self.text("submitted").strip()

    def read_jobs(self, entry: Entry) -> None:
        """Set the ids of the submitted jobs in an entry, and whether the submission has ended."""
        entry.complete = bool(self.submission())  # read before the jobs, so that none is missed
        for line in self.text("jobs").split("\n"):
            fields = line.split()
            if len(fields) == 3:
                entry.roles[int(fields[0])].jobs[int(fields[1])] = fields[2]


def record_path(folder: str, app_id: str) -> str:
    """Return the path of an app's record.

    Args:
        folder: Working directory of the jobs.
        app_id: The app's id.
    """
    return posixpath.join(folder, RECORDS, app_id)
