"""The index of submitted jobs, and the record that each job keeps of itself.

The index is in ``$TORCHX_HOME/slurm`` on the user's machine: one small file for each job, written
at submission. If a process is killed during the submission, the announced entry, whose id is the
mark, stays in the index, and is an alias of the job.

The record is a directory beside the job's logs (:data:`.script.RECORDS`), because compute nodes may
not see the user's home directory. The directory's name is the mark of the submission, a random id,
because Slurm reuses job numbers. If a user submits the script by hand, the directory's name is the
job number.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from dataclasses import dataclass, replace
from functools import cached_property

from torchx_kit.batch.entries import Entry, RoleEntry
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.records import JobRecord
from torchx_sched_slurm.job_files.script import RECORDS, SCRIPT
from torchx_sched_slurm.jobs import parse_job_id, selector
from torchx_specs.model.templates import macros

#: The file, in the record of an array, with the names of the apps as JSON.
NAMES = "names.json"
_TAIL_CHARACTERS = 4000

# A line of the script's table of roles: replicas, restarts, name.
_ROLE = re.compile(r'    "(\d+) (\d+) (\S+)"')


@dataclass
class SlurmEntry(Entry):
    """A job, an array, or a task of an array in the index."""

    @staticmethod
    def split_id(app_id: str) -> tuple[str, int | None]:
        """Return the array id and the task number in an id such as ``12_3``.

        >>> SlurmEntry.split_id("12_3@main"), SlurmEntry.split_id("12")
        (('12@main', 3), ('12', None))
        """
        app_id = parse_job_id(app_id) or app_id
        match = re.fullmatch(r"(\d+)_(\d+)(.*)", app_id)
        return (match[1] + match[3], int(match[2])) if match else (app_id, None)

    def element_id(self, index: int) -> str:
        """Return the id of a task: ``12_3@main`` for task 3 of ``12@main``."""
        return re.sub(r"^\d+", rf"\g<0>_{index}", self.app_id)

    @property
    def mark(self) -> str:
        """The mark of the submission: a random id, which is part of the script's path."""
        return self.record.rpartition(f"/{RECORDS}/")[2].partition("/")[0]

    @property
    def is_announced(self) -> bool:
        """Whether the job's number is not known yet, so that the id is the mark."""
        return parse_job_id(self.app_id) is None

    @property
    def jobs(self) -> list[str]:
        """The id of the job, or of the array of a task; empty before Slurm has accepted it."""
        return super().jobs if self.is_announced else [self.split_id(self.app_id)[0]]

    def confirmed(self) -> SlurmEntry:
        """Return the entry with the id that sbatch has printed, instead of the mark."""
        (app_id,) = self.jobs
        return replace(
            self, app_id=app_id, folder=self.folder.replace(macros.app_id, selector(app_id))
        )

    def log(self, role: int, k: int) -> str:
        """Return the path of a replica's log without its suffix."""
        name = f"slurm-{selector(self.app_id)}-{self.roles[role].job_name}-{k}"
        return posixpath.join(self.folder, name)

    def log_files(self) -> list[str]:
        """Return the paths of all files that the job or its tasks may have written as logs."""
        folder = self.record.partition(f"/{RECORDS}/")[0]
        apps = (self.elements({}) if self.names else [self]) if folder else []
        outputs = [posixpath.join(folder, f"slurm-{selector(app.app_id)}.out") for app in apps]
        return outputs + super().log_files()


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
        cause: The state in which Slurm ended the job; ``RUNNING`` if the job ended by itself, and
            empty if Slurm did not answer.
    """

    state: str
    exit_code: int
    attempt: int
    ended: int
    cause: str = ""


class SlurmRecord(JobRecord):
    """The record of a job, including the files that only the script for Slurm writes.

    The start and the outcome are read once, so a query uses an object of its own.
    """

    @cached_property
    def outcome(self) -> Outcome | None:
        """The outcome of the last attempt, or None if it has not reported its end."""
        fields = self.fields("outcome", 4)
        if not fields:
            return None
        state, code, attempt, ended, *cause = fields
        return Outcome(state, int(code), int(attempt), int(ended), "".join(cause))

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

    def folder(self) -> str:
        """Return the directory that contains the logs."""
        return self.text("folder").rstrip("\n") or self._submission_folder()

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

    def names(self) -> list[str]:
        """Return the names of the apps of an array; an empty list if the record has none."""
        try:
            names = json.loads(self.text(NAMES))
        except ValueError:
            return []
        return [str(name) for name in names] if isinstance(names, list) else []

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
