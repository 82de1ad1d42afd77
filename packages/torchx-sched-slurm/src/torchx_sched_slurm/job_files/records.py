"""The index of submitted jobs, and the record that each job keeps of itself.

The index is in ``$TORCHX_HOME/slurm`` on the user's machine: one small file for each job, written
at submission. The record is a directory beside the job's logs (:data:`.script.RECORDS`), because
compute nodes may not see the user's home directory. The directory's name is the mark of the
submission, a random id, because Slurm reuses job numbers. If a user submits the script by hand, the
directory's name is the job number.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.index import JobIndex, entry_from_dict
from torchx_kit.jobs.logs import log_files
from torchx_kit.jobs.records import JobRecord
from torchx_sched_slurm.job_files.script import RECORDS, SCRIPT
from torchx_sched_slurm.queue.queries import selector

_TAIL_CHARACTERS = 4000

# A line of the script's table of roles: replicas, restarts, name.
_ROLE = re.compile(r'    "(\d+) (\d+) (\S+)"')

# Patterns of srun's messages about a step that Slurm ended, by Slurm's state.
_CAUSES = {
    "OUT_OF_MEMORY": r"oom[-_ ]kill|OOM Killed",
    "TIMEOUT": r"CANCELLED AT \S+ DUE TO TIME LIMIT",
    "PREEMPTED": r"CANCELLED AT \S+ DUE TO PREEMPTION",
    "NODE_FAIL": r"CANCELLED AT \S+ DUE TO NODE|Node failure on ",
}


@dataclass
class RoleEntry:
    """A role of a submitted job.

    Attributes:
        name: The role's name.
        file_name: The role's name in log file names.
        replicas: Number of replicas.
    """

    name: str
    file_name: str
    replicas: int


@dataclass
class Entry:
    """A job in the index.

    Attributes:
        app_id: The job's id; the mark until sbatch has printed the id.
        mark: The mark of the submission: a random id, which is part of the script's path.
        name: Name of the app.
        folder: The job's working directory, which also contains the logs.
        record: Directory of the job's record.
        submitted: Time of the submission, in epoch seconds; 0 if the job is not in the index.
        roles: The roles, in the order of the script's table.
        cancelled: Whether the user cancelled the job.
        deleted: Whether the user deleted the job.
        state: Slurm's final state of the job; empty until a query has returned one.
        ended: Slurm's end time of the job, in epoch seconds; 0 until a query has returned one.
        tasks: Number of tasks if the job is an array of apps, else 0.
        cancelled_tasks: The numbers of an array's tasks that the user cancelled, as a list of
            ranges such as ``0-3,7``; empty if only the whole array, or no task, was cancelled.
        submitter: The submitting process, from :func:`torchx_kit.jobs.submitter.this_process`.
    """

    app_id: str
    mark: str
    name: str
    folder: str
    record: str
    submitted: float = 0.0
    roles: list[RoleEntry] = field(default_factory=list)
    cancelled: bool = False
    deleted: bool = False
    state: str = ""
    ended: float = 0.0
    tasks: int = 0
    cancelled_tasks: str = ""
    submitter: dict[str, Any] = field(default_factory=dict)

    def log(self, role: int, k: int) -> str:
        """Return the path of a replica's log, without its suffix.

        Args:
            role: Index of the role.
            k: Index of the replica in its role.
        """
        number = selector(self.app_id)
        return posixpath.join(self.folder, f"slurm-{number}-{self.roles[role].file_name}-{k}")

    def log_files(self) -> list[str]:
        """Return the paths of all files that a job, array or task may have written as logs."""
        number = selector(self.app_id)
        folder = self.record.partition(f"/{RECORDS}/")[0]
        paths = []
        for name in [f"{number}_{task}" for task in range(self.tasks)] or [number]:
            if folder:
                paths.append(posixpath.join(folder, f"slurm-{name}.out"))
            one = replace(self, app_id=name)
            paths += log_files(
                one.log(i, k) for i, r in enumerate(self.roles) for k in range(r.replicas)
            )
        return paths


class Index(JobIndex[Entry]):
    """The jobs that this user submitted with the current ``$TORCHX_HOME``."""

    def __init__(self) -> None:
        from_dict = partial(entry_from_dict, Entry, RoleEntry)
        super().__init__("slurm", "jobs", from_dict=from_dict)

    def get(self, app_id: str) -> Entry | None:
        """Return the entry of a job; earlier releases wrote ``;`` before the name of a cluster."""
        found = super().get(app_id)
        return super().get(app_id.replace("@", ";")) if found is None and "@" in app_id else found

    def confirm(self, entry: Entry) -> None:
        """Replace the announced entry, whose id is the mark, by an entry with the job's id.

        If this process is killed before, the announced entry stays in the index, and is an alias of
        the job: see ``SlurmScheduler._resolved``.
        """
        self.put(entry)
        self.remove(entry.mark)


@dataclass(frozen=True)
class Start:
    """The start of an attempt of a job, as the script reports it.

    Attributes:
        attempt: Index of the attempt: 0 for the first.
        job: The job's number, followed by ``_`` and the task's number for a task of an array.
        time: Start time, in epoch seconds.
    """

    attempt: int
    job: str
    time: int


@dataclass(frozen=True)
class Outcome:
    """The end of an attempt of a job, as the script reports it.

    Attributes:
        state: ``SUCCEEDED``, ``FAILED`` or ``REQUEUED``.
        exit_code: Exit code of the replica that failed first, above 128 for a signal; 0 if none
            failed.
        attempt: Index of the attempt: 0 for the first.
        ended: End time, in epoch seconds.
    """

    state: str
    exit_code: int
    attempt: int
    ended: int


class SlurmRecord(JobRecord):
    """The record of a job, including the files that only the script for Slurm writes.

    The start and the outcome are read once, so a query uses an object of its own.
    """

    @cached_property
    def outcome(self) -> Outcome | None:
        """The outcome of the last attempt, or None if it has not reported its end."""
        fields = self.fields("outcome", 4)
        return Outcome(fields[0], *map(int, fields[1:4])) if fields else None

    @cached_property
    def start(self) -> Start | None:
        """The start of the last attempt, or None if the job never started."""
        return self._start("started")

    def _start(self, name: str) -> Start | None:
        fields = self.fields(name, 3)
        return Start(int(fields[0]), fields[1], int(fields[2])) if fields else None

    def job_number(self) -> str:
        """Return the job number that the record contains; empty if the job never started."""
        found = self.start
        if found is None:  # the records of an array's tasks are in the record of the array
            with contextlib.suppress(HostFileError):
                tasks = [name for name in self.host.list(self.path) if name.isdigit()]
                starts = (self._start(posixpath.join(name, "started")) for name in tasks)
                found = next(filter(None, starts), None)
        return found.job.partition("_")[0] if found else ""

    def ending(self) -> dict[str, str]:
        """Return the fields of ``scontrol show job``, which the script queried when the job ended.

        The dict is empty if the script did not query the job.
        """
        line = self.text("ending").partition("\n")[0]
        return dict(re.findall(r"(?:^| )([A-Za-z/]+)=(\S+)", line))

    def cause(self) -> str:
        """Return the state of Slurm that srun's messages show, or an empty string."""
        text = self.text("srun")
        return next((name for name, pattern in _CAUSES.items() if re.search(pattern, text)), "")

    def folder(self) -> str:
        """Return the directory that contains the logs."""
        return self.text("folder").rstrip("\n") or self._submission_folder()

    def setup_failure(self) -> str:
        """Return the line of the option ``setup`` that failed, or an empty string."""
        return self.text("setup").partition("\n")[0]

    def batch_log_hint(self, job_number: str) -> str:
        """Return the path and the last line of the batch script's log.

        Return an empty string if the log is missing or empty.

        Args:
            job_number: The job's number.
        """
        path = posixpath.join(self._submission_folder(), f"slurm-{job_number}.out")
        try:
            text = self.host.read_text(path)
        except HostFileError:
            return ""
        lines = [line.strip() for line in text[-_TAIL_CHARACTERS:].split("\n") if line.strip()]
        return f"{path} ends with: {lines[-1]}" if lines else ""

    def _submission_folder(self) -> str:
        return posixpath.dirname(posixpath.dirname(self.path))

    def end_files(self, role: int, k: int) -> list[str]:
        """Return the paths of the files that change when a replica or the job ends."""
        return [posixpath.join(self.path, "outcome"), self.replica_path(role, k)]

    def roles(self) -> list[RoleEntry]:
        """Return the roles in the script's table, for jobs that are not in the index."""
        text = self.text("script") or self.text(SCRIPT)  # a pending job has no copy yet
        rows = _ROLE.findall(text.partition("\n)")[0])
        return [RoleEntry(name, name, int(count)) for count, _, name in rows]


def record_path(folder: str, mark: str) -> str:
    """Return the path of a job's record.

    Args:
        folder: The job's working directory.
        mark: The mark of the submission.
    """
    return posixpath.join(folder, RECORDS, mark)
