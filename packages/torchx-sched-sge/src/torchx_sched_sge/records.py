"""The index of submitted apps, and the record that each app keeps of itself.

The index is in ``$TORCHX_HOME/sge`` on the user's machine. The record is the directory
``.torchx-sge/<app id>`` beside the logs, because the hosts may not see the user's home directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torchx_kit.hosts.api import Host
from torchx_kit.jobs.app_entries import AppEntry
from torchx_kit.jobs.index import JobIndex, entry_from_dict
from torchx_kit.jobs.records import JobRecord

#: Name of the directory that contains the records of apps, in the directory of the logs.
RECORDS = ".torchx-sge"
#: File name, in the record, of the script that the jobs run.
SCRIPT = "script"
#: Name of the record's file with the submission's variables, as bash statements.
VARIABLES = "env"


@dataclass
class RoleEntry:
    """A role of a submitted app.

    Attributes:
        name: The role's name.
        job_name: Name of the role in the names of jobs and logs.
        num_replicas: Number of replicas, which are the tasks of the role's job.
        job: Id of the role's job; empty if the job is not submitted yet.
    """

    name: str
    job_name: str
    num_replicas: int
    job: str = ""


@dataclass
class Entry(AppEntry[RoleEntry]):
    """An app in the index."""

    records_folder = RECORDS

    @property
    def jobs(self) -> list[str]:
        """Ids of all jobs that are known to be submitted."""
        return [role.job for role in self.roles if role.job]

    @property
    def replicas(self) -> dict[str, int]:
        """The number of replicas of each role, by the role's name."""
        return {role.name: role.num_replicas for role in self.roles}


class Index(JobIndex[Entry]):
    """The apps that this user submitted with the current ``$TORCHX_HOME``."""

    def __init__(self) -> None:
        super().__init__("sge", "apps", from_dict=partial(entry_from_dict, Entry, RoleEntry))


def app_record(host: Host, entry: Entry) -> JobRecord:
    """Return the record of an app.

    In addition to the files of :class:`torchx_kit.jobs.records.JobRecord`, the record has
    :data:`SCRIPT`, :data:`VARIABLES`, and the host of rank 0 in the file ``rank0``.
    """
    return JobRecord(host, entry.record)
