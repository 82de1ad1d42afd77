"""Asking Slurm about jobs: the columns needed, of the jobs needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchx_sched_slurm.client import Slurm, SlurmError
from torchx_sched_slurm.states import base_state
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS

# Between columns: free text (names, comments) holds anything else.
_SEPARATOR = "\x1f"
_SQUEUE = ("%i", "%T", "%r", "%S", "%N", "%V", "%Z", "%j", "%k")
_SACCT = (
    *("JobID", "State", "Reason", "Start", "NodeList", "Submit", "WorkDir"),
    *("JobName", "Comment", "ExitCode"),
)
_SACCT_OLD = ("JobID", "State", "JobName", "ExitCode")

_JOB_ID = re.compile(r"(\d+)(?:;([A-Za-z0-9_.-]+))?")
_MARK = re.compile(r"\btorchx:([a-z0-9]{8,20})\b")
_NO_ACCOUNTING = ("accounting storage is disabled", "sacct on path", "no command sacct")


@dataclass(frozen=True)
class JobId:
    """A job's number, and its cluster where there are several."""

    number: str
    cluster: str = ""

    @classmethod
    def parse(cls, app_id: str) -> JobId | None:
        """Returns the id that ``sbatch --parsable`` printed, None for anything else."""
        found = _JOB_ID.fullmatch(app_id)
        return cls(found[1], found[2] or "") if found else None

    def options(self) -> tuple[str, ...]:
        """What tells a command which cluster is meant."""
        return ("--clusters", self.cluster) if self.cluster else ()

    def __str__(self) -> str:
        return f"{self.number};{self.cluster}" if self.cluster else self.number


@dataclass(frozen=True)
class Component:
    """One component of a job; all but heterogeneous jobs have one.

    Args:
        number: the job's number
        offset: the component's, 0 for the one whose script runs
        state: Slurm's state
        reason: why it is in this state, if Slurm says so
        start: when it has started, or is expected to
        nodes: its nodes, as a list with brackets
        submitted: when it was submitted
        folder: its working directory
        name: its name
        comment: its comment
        exit_code: ``code:signal``
    """

    number: str
    offset: int
    state: str
    reason: str = ""
    start: str = ""
    nodes: str = ""
    submitted: str = ""
    folder: str = ""
    name: str = ""
    comment: str = ""
    exit_code: str = ""

    @property
    def mark(self) -> str:
        """The mark of the submission, empty if it is not one of ours."""
        found = _MARK.search(self.comment)
        return found[1] if found else ""


#: A job: its components.
Job = tuple[Component, ...]


def mark_in(comment: str | None, mark: str) -> str:
    """Returns a comment with the mark of a submission."""
    return f"{comment} torchx:{mark}" if comment else f"torchx:{mark}"


def queued(slurm: Slurm, job_id: JobId) -> Job | None:
    """Returns a job that the controller knows, None if it does not (any more).

    Raises:
        SlurmError: it cannot be asked
    """
    try:
        out = slurm.ask(*_squeue(), *job_id.options(), "-j", job_id.number)
    except SlurmError as e:
        if "invalid job id" in str(e).lower():
            return None
        raise
    return jobs_of_squeue(out).get(job_id.number)


def all_queued(slurm: Slurm) -> dict[str, Job]:
    """Returns this user's jobs that the controller knows, by number.

    Raises:
        SlurmError: it cannot be asked
    """
    return jobs_of_squeue(slurm.ask(*_squeue(), "-u", str(os.getuid())))


class Accounting:
    """sacct, until it turns out that there is none."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._there = True

    def job(self, job_id: JobId) -> Job | None:
        """Returns a job, None if there is none or no accounting."""
        out = self._ask((*job_id.options(), "-j", job_id.number))
        return out.get(job_id.number)

    def all_jobs(self, days: int = DAYS_IN_2_WEEKS) -> dict[str, Job]:
        """Returns this user's jobs of the last ``days``, by number; none without accounting."""
        return self._ask(("-u", str(os.getuid()), "-S", f"now-{days}days"), brief=True)

    def _ask(self, which: tuple[str, ...], brief: bool = False) -> dict[str, Job]:
        columns = (_SACCT_OLD,) if brief else (_SACCT, _SACCT_OLD)
        for names in columns if self._there else ():
            try:
                out = self._slurm.run(
                    *("sacct", "-X", "-n", "-P", f"--delimiter={_SEPARATOR}"),
                    *("-o", ",".join(names), *which),
                )
            except SlurmError as e:
                said = str(e).lower()
                if any(words in said for words in _NO_ACCOUNTING):
                    self._there = False
                elif "invalid field" in said:
                    continue  # older than these columns
                return {}  # accounting only adds to what is known otherwise
            return jobs_of_sacct(out, names)
        return {}


def _squeue() -> tuple[str, ...]:
    return ("squeue", "-h", "-t", "all", "-o", _SEPARATOR.join(_SQUEUE))


def jobs_of_squeue(out: str) -> dict[str, Job]:
    """Reads squeue's columns."""
    return _jobs(
        Component(
            *_split_id(values[0]),
            state=base_state(values[1]),
            reason=values[2],
            start=values[3],
            nodes=values[4],
            submitted=values[5],
            folder=values[6],
            name=values[7],
            comment="" if values[8] == "(null)" else values[8],
        )
        for values in _rows(out, len(_SQUEUE))
    )


def jobs_of_sacct(out: str, names: tuple[str, ...] = _SACCT) -> dict[str, Job]:
    """Reads sacct's columns."""
    jobs = []
    for values in _rows(out, len(names)):
        row = dict(zip(names, values, strict=True))
        if "." in row["JobID"]:
            continue  # a step
        jobs.append(
            Component(
                *_split_id(row["JobID"]),
                state=base_state(row["State"]),
                reason=row.get("Reason", ""),
                start=row.get("Start", ""),
                nodes=row.get("NodeList", "").replace("None assigned", ""),
                submitted=row.get("Submit", ""),
                folder=row.get("WorkDir", ""),
                name=row["JobName"],
                comment=row.get("Comment", ""),
                exit_code=row["ExitCode"],
            )
        )
    return _jobs(jobs)


def _rows(out: str, columns: int) -> list[list[str]]:
    # a name with a newline (of another program's job) continues the row
    rows: list[list[str]] = []
    for line in out.split("\n"):
        values = line.split(_SEPARATOR)
        if len(values) == columns:
            rows.append([value.strip() for value in values])
    return rows


def _split_id(text: str) -> tuple[str, int]:
    """Splits ``971``, ``971+0`` (heterogeneous) or ``971_4`` (array)."""
    number, _, offset = re.sub("_.*", "", text).partition("+")
    return number, int(offset) if offset.isdigit() else 0


def _jobs(components: Iterable[Component]) -> dict[str, Job]:
    jobs: dict[str, list[Component]] = {}
    for component in components:
        jobs.setdefault(component.number, []).append(component)
    return {number: tuple(sorted(job, key=lambda c: c.offset)) for number, job in jobs.items()}


def nodes_of(text: str, limit: int = 100_000) -> list[str]:
    """Returns the names in a list with brackets.

    >>> nodes_of("n[1-3,7],gpu[08-10]")
    ['n1', 'n2', 'n3', 'n7', 'gpu08', 'gpu09', 'gpu10']
    """
    names: list[str] = []
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        found = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", item)
        if found is None:
            names.append(item.strip())
            continue
        for part in found[2].split(","):
            first, _, last = part.partition("-")
            if not (first.isdigit() and (last or first).isdigit()):
                return [text]
            for number in range(int(first), int(last or first) + 1):
                names += nodes_of(f"{found[1]}{number:0{len(first)}d}{found[3]}")
                if len(names) > limit:
                    return names
    return [name for name in names if name]


_version: tuple[int, int] | None = None


def version() -> tuple[int, int]:
    """Returns the version of Slurm here, as far as its name says (24.5 is ``(24, 5)``); asked once.

    Without Slurm it is that of 24.05, with a warning.
    """
    global _version
    if _version is None:
        import logging

        try:
            out = Slurm(timeout=10.0).run("sinfo", "--version")
            found = re.search(r"(\d+)\.(\d+)", out)
            if found is None:
                raise SlurmError(f"sinfo --version: {out.strip()!r}")
            _version = int(found[1]), int(found[2])
        except SlurmError as e:
            logging.getLogger(__name__).warning("assuming Slurm 24.05: %s", e)
            _version = (24, 5)
    return _version


def _should_use_gpus_per_node_from_version() -> bool:
    return version() >= (24, 11)
