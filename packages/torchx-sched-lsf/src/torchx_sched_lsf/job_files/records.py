"""The index of submitted apps, and the record that each app keeps of itself.

The index is in ``$TORCHX_HOME/lsf`` on the user's machine. The record is the directory
``.torchx-lsf/<app id>`` beside the logs, because LSF's hosts may not see the user's home directory.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.app_entries import AppEntry
from torchx_kit.jobs.index import JobIndex, entry_from_dict
from torchx_kit.jobs.records import JobRecord
from torchx_sched_lsf.job_files.script import RECORDS
from torchx_sched_lsf.names import element_id, split_element

#: Name of the submission script in the record. The script copies itself to the file ``script`` in
#: the record; the jobs run this copy.
SCRIPT = "torchx-bsub.sh"

# Time limit of a submission, and the additional time for each replica of the app, in seconds.
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
class Entry(AppEntry[RoleEntry]):
    """An app, an array of apps or an element of an array in the index.

    Attributes:
        names: The names of the elements' apps if this is an array; empty for other apps.
    """

    records_folder = RECORDS

    names: list[str] = field(default_factory=list)

    @classmethod
    def record_path(cls, folder: str, app_id: str) -> str:
        """Return the path of an app's record, which is in the array's record for an element.

        Args:
            folder: Working directory of the jobs.
            app_id: The app's id.
        """
        array_id, index = split_element(app_id)
        path = super().record_path(folder, array_id)
        return posixpath.join(path, str(index)) if index else path

    def element(self, index: int) -> Entry:
        """Return the entry of an element of this array.

        Args:
            index: The element's index, which starts with 1.
        """
        roles = [
            RoleEntry(role.name, role.job_name, [f"{job}[{index}]" if job else ""])
            for role in self.roles
            for job in role.jobs
        ]
        return Entry(
            element_id(self.app_id, index),
            self.names[index - 1],
            self.folder,
            roles,
            self.submitted,
            cancelled=self.cancelled,
            deleted=self.deleted,
            complete=self.complete,
        )

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

    @property
    def replicas(self) -> dict[str, int]:
        """The number of replicas of each role, by the role's name."""
        return {role.name: len(role.jobs) for role in self.roles}

    def logs(self) -> list[str]:
        """Return the paths of all logs without their suffixes, also of LSF's reports of jobs."""
        own = super().logs()
        elements = map(self.element, range(1, len(self.names) + 1))
        return [
            *(own + [f"{base}.submit" for base in own]),
            *chain.from_iterable(element.logs() for element in elements),
        ]


class Index(JobIndex[Entry]):
    """The apps that this user submitted with the current ``$TORCHX_HOME``.

    An array has one entry. An element gets its own entry only when it is cancelled or deleted, or
    when a query shows its end; until then, its entry is made from the entry of the array.
    """

    def __init__(self) -> None:
        from_dict = partial(entry_from_dict, Entry, RoleEntry)
        super().__init__("lsf", "apps", from_dict=from_dict)

    def get(self, app_id: str) -> Entry | None:
        """Return the entry of an app; None if it is missing or not valid."""
        own = super().get(app_id)
        array_id, index = split_element(app_id)
        array = super().get(array_id) if index else None
        if array is None or index > len(array.names):
            return own
        return merged(array.element(index), own)


def merged(element: Entry, own: Entry | None) -> Entry:
    """Return the entry of an element, with the data of its own entry in the index, if any.

    Args:
        element: The entry that was made from the array's entry.
        own: The entry that the element has in the index; None if it has none.
    """
    if own is None:
        return element
    own.deleted = own.deleted or element.deleted
    if not own.complete:  # the element was cancelled during the submission
        own.roles, own.complete = element.roles, element.complete
    return own


class LsfRecord(JobRecord):
    """The record of one app.

    In addition to the files of :class:`torchx_kit.jobs.records.JobRecord` and to files that only
    the script uses, it has:

    - ``jobs``: role, replica and id of every job that LSF has accepted, one line for each job.
    - ``submitted``: how the submission ended: ``all``, ``failed`` (a replica failed before the last
      job was submitted), ``refused`` or ``cancelled``. The file is missing during the submission.
    - ``cancelled``: exists once the user cancelled the app; it also stops the submission.
    - ``bsub.err``: messages of the last bsub.

    The record of an array's element is a sub-directory of the array's record, which has the files
    of the submission, and the files with the commands of all elements
    (:mod:`torchx_kit.jobs.arrays`).
    """

    def __init__(self, host: Host, entry: Entry) -> None:
        super().__init__(host, entry.record)
        self._index = split_element(entry.app_id)[1]

    def cancel(self) -> None:
        """Write that the user cancelled the app; do nothing if the record is missing."""
        try:
            if self._index and self.host.exists(posixpath.dirname(self.path)):
                self.host.make_dirs(self.path, mode=0o700)  # the element has not started yet
            self.host.write(posixpath.join(self.path, "cancelled"), "")
        except HostFileError:
            pass  # without a record, there is no script that would read the file

    def is_cancelled(self) -> bool:
        """Return whether the user cancelled the app."""
        return self.host.exists(posixpath.join(self.path, "cancelled"))

    def submission(self) -> str:
        """Return how the submission ended, or an empty string if it has not ended."""
        return self._submission_text("submitted").strip()

    def exists(self) -> bool:
        """Return whether the record exists; for an element, whether its array's record exists."""
        return self.host.exists(self._submission_folder)

    def has_begun(self) -> bool:
        """Return whether the script that calls bsub has started."""
        return self.host.exists(posixpath.join(self._submission_folder, "jobs"))

    def read_jobs(self, entry: Entry) -> None:
        """Set the ids of the submitted jobs in an entry, and whether the submission has ended."""
        entry.complete = bool(self.submission())  # read first, so that no job is missed
        suffix = f"[{self._index}]" if self._index else ""
        for line in self._submission_text("jobs").split("\n"):
            fields = line.split()
            if len(fields) == 3:
                entry.roles[int(fields[0])].jobs[int(fields[1])] = fields[2] + suffix

    @property
    def _submission_folder(self) -> str:
        return posixpath.dirname(self.path) if self._index else self.path

    def _submission_text(self, name: str) -> str:
        return self.text(posixpath.join(self._submission_folder, name))
