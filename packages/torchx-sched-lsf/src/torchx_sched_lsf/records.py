"""The index of submitted apps, and the record that each app keeps of itself.

The index is in ``$TORCHX_HOME/lsf`` on the user's machine. The record is the directory
``.torchx-lsf/<app id>`` beside the logs, because LSF's hosts may not see the user's home directory.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from functools import partial

from torchx_kit.jobs.index import JobIndex, entry_from_dict
from torchx_sched_lsf.script import RECORDS

#: Name of the script in the record. It copies itself to ``script``, which the jobs run.
SCRIPT = "torchx-bsub.sh"


@dataclass
class RoleEntry:
    """A role of a submitted app.

    Attributes:
        name: The role's name.
        job_name: The role's name in the names of jobs.
        jobs: Ids of the replicas' jobs.
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
    """

    app_id: str
    name: str
    folder: str
    submitted: float = 0.0
    roles: list[RoleEntry] = field(default_factory=list)
    cancelled: bool = False
    deleted: bool = False

    @property
    def record(self) -> str:
        """Path of the app's record."""
        return record_path(self.folder, self.app_id)

    @property
    def jobs(self) -> list[str]:
        """Ids of all jobs."""
        return [job for role in self.roles for job in role.jobs]


class Index(JobIndex[Entry]):
    """The apps that this user submitted with the current ``$TORCHX_HOME``."""

    def __init__(self) -> None:
        from_dict = partial(entry_from_dict, Entry, RoleEntry)
        super().__init__("lsf", "apps", from_dict=from_dict)


def record_path(folder: str, app_id: str) -> str:
    """Return the path of an app's record.

    Args:
        folder: Working directory of the jobs.
        app_id: The app's id.
    """
    return posixpath.join(folder, RECORDS, app_id)
