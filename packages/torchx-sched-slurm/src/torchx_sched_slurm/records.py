"""What is remembered of jobs: an index by id, and what each job says of itself.

The index is in ``$TORCHX_HOME/slurm``, one small file for each job, written when it is submitted.
What a job says of itself is in a folder beside its logs (:data:`.script.RECORDS`): its nodes may
see no home. The folder is named by the mark of the submission, so that numbers that
Slurm gives again mix nothing up; that of a script run by hand by the job's number.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.jobs.index import JobIndex
from torchx_sched_slurm.script import RECORDS
from torchx_specs.errors import RequestError

#: Upstream's file of jobs and their folders, in the folder from which they were submitted.
SLURM_JOB_DIRS = ".torchxslurmjobdirs"

SCRIPT = "torchx-sbatch.sh"

_ROLE = re.compile(r'    "(\d+) (\d+) (\S+)"')


# What srun prints when a step is ended.
_CAUSES = {
    "OUT_OF_MEMORY": r"oom[-_ ]kill|OOM Killed",
    "TIMEOUT": r"CANCELLED AT \S+ DUE TO TIME LIMIT",
    "PREEMPTED": r"CANCELLED AT \S+ DUE TO PREEMPTION",
    "NODE_FAIL": r"CANCELLED AT \S+ DUE TO NODE",
}


@dataclass
class RoleRecord:
    """A role: its name, its name in the names of files, how many replicas."""

    name: str
    file_name: str
    replicas: int


@dataclass
class Entry:
    """A job that was submitted here.

    Args:
        app_id: its id
        mark: tells the submission apart
        name: of the app
        folder: its working directory, in which its logs are
        record: folder with what it says of itself
        submitted: when, in epoch seconds
        roles: its roles, in the order in which the script numbers them
        cancelled: somebody has asked for its end
        deleted: it is to be forgotten
        state: Slurm's state in which it has ended, once that was seen
    """

    app_id: str
    mark: str
    name: str
    folder: str
    record: str
    submitted: float = 0.0
    roles: list[RoleRecord] = field(default_factory=list)
    cancelled: bool = False
    deleted: bool = False
    state: str = ""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Entry:
        """Returns the entry of which ``data`` is the :func:`dataclasses.asdict`."""
        known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        known["roles"] = [RoleRecord(**role) for role in data.get("roles", ())]
        return cls(**known)


@dataclass
class ReplicaRecord:
    """What a replica has said of itself.

    Args:
        restarts: how often it was started again by itself
        node: where it runs, or ran
        started: when, in epoch seconds
        ended: when, None while it runs
        exit_code: as the shell has it: 128 and the number for a signal
    """

    restarts: int
    node: str
    started: int
    ended: int | None = None
    exit_code: int | None = None


@dataclass
class Outcome:
    """What a job has said of its end.

    Args:
        state: SUCCEEDED, FAILED or REQUEUED
        exit_code: that of the replica that failed first
        attempt: which of its starts that was
        ended: when, in epoch seconds
    """

    state: str
    exit_code: int
    attempt: int
    ended: int


class Record:
    """The folder with what a job says of itself; it may be anything but whole."""

    def __init__(self, path: str) -> None:
        self.path = path

    def outcome(self) -> Outcome | None:
        """Returns how the job has ended, as it says itself; None if it doesn't."""
        words = self._words("outcome", 4)
        return Outcome(words[0], *map(int, words[1:4])) if words else None

    def attempt(self) -> int | None:
        """Returns how often the job was started again, None if it never was started."""
        words = self._words("started", 3)
        return int(words[0]) if words else None

    def replica(self, role: int, k: int) -> ReplicaRecord | None:
        """Returns what a replica says, None if it was not started in this attempt."""
        words = self._words(f"replica-{role}-{k}", 3)
        if not words:
            return None
        found = ReplicaRecord(int(words[0]), words[1], int(words[2]))
        if len(words) >= 5:
            found.ended, found.exit_code = int(words[3]), int(words[4])
        return found

    def first_failure(self) -> tuple[int, int, str, int] | None:
        """Returns role, replica, node and exit code of what failed first."""
        words = self._words("failed", 4)
        return (int(words[0]), int(words[1]), words[2], int(words[3])) if words else None

    def ending(self) -> dict[str, str]:
        """Returns what the controller said when the job was told to end: ``JobState`` ..."""
        found = re.findall(r"(?:^| )([A-Za-z/]+)=(\S+)", self._text("ending").partition("\n")[0])
        return dict(found)

    def cause(self) -> str:
        """Returns the state that Slurm's words to srun mean, empty if they mean none."""
        text = self._text("srun")
        return next((name for name, words in _CAUSES.items() if re.search(words, text)), "")

    def error(self, role: int, k: int) -> str:
        """Returns the JSON of the error that a replica has left, or an empty string."""
        return self._text(f"error-{role}-{k}.json").strip()

    def watched(self, role: int, k: int) -> list[str]:
        """Returns the files that change when a replica or the job ends."""
        return [os.path.join(self.path, name) for name in ("outcome", f"replica-{role}-{k}")]

    def roles(self) -> list[RoleRecord]:
        """Returns the roles by the script's table, for jobs that nobody has entered."""
        found = _ROLE.findall(self._text("script").partition("\n)")[0])
        return [RoleRecord(name, name, int(count)) for count, _, name in found]

    def _words(self, name: str, least: int) -> list[str]:
        text = self._text(name)
        words = text.split()
        # a file without its newline is being written
        return words if text.endswith("\n") and len(words) >= least else []

    def _text(self, name: str) -> str:
        try:
            with open(
                os.path.join(self.path, name), encoding="utf-8", errors="surrogateescape"
            ) as file:
                return file.read()
        except OSError:
            return ""


def record_of(folder: str, mark: str) -> str:
    """Returns the path of the record of a submission from ``folder``."""
    return os.path.join(folder, RECORDS, mark)


class Index(JobIndex[Entry]):
    """The jobs submitted by this user from this home."""

    def __init__(self) -> None:
        super().__init__("slurm", "jobs", from_dict=Entry.from_dict)


def _get_job_dirs(folder: str = "") -> dict[str, str]:
    """Returns the folders of the jobs submitted from ``folder``, by default the current one.

    Lines that are no entries are left out.
    """
    try:
        with open(
            os.path.join(folder, SLURM_JOB_DIRS), encoding="utf-8", errors="surrogateescape"
        ) as file:
            lines = file.read().split("\n")
    except OSError:
        return {}
    found = (line.partition(" = ") for line in lines)
    return {job_id.strip(): job_dir for job_id, equals, job_dir in found if equals}


def _save_job_dir(job_id: str, job_dir: str) -> None:
    """Adds a job to the file in the current folder; two that do so at once lose nothing."""
    line = f"{job_id} = {job_dir}\n".encode("utf-8", "surrogateescape")
    fd = os.open(SLURM_JOB_DIRS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def make_record(folder: str, mark: str, text: str) -> tuple[str, str]:
    """Makes the record of a submission, with its script.

    Args:
        folder: the job's working directory
        mark: of the submission
        text: the script

    Returns:
        the paths of record and script

    Raises:
        RequestError: nothing can be written there
    """
    record = record_of(folder, mark)
    path = os.path.join(record, SCRIPT)
    try:
        os.makedirs(record, mode=0o700)
        write_atomically(path, text)
    except OSError as e:
        raise RequestError(
            f"cannot write to {folder}, the job's folder: {e.strerror or e};"
            " set the option job_dir to a folder that you and the nodes can write to"
        ) from None
    return record, path


def remove_record(path: str) -> None:
    """Removes a record, and the folder of records if it was the last."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))
