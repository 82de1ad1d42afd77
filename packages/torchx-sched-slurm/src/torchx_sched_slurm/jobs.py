"""Ids of jobs, and the output of squeue and sacct."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.states import JobInfo
from torchx_kit.times import moment
from torchx_sched_slurm.job_files.script import RECORDS, SCRIPT
from torchx_sched_slurm.states import appstate_from_slurm_state, base_state
from torchx_specs.model.status import AppState, is_terminal

#: Separator of columns: a control character, because names and paths may contain any printable one.
SEPARATOR = "\x1f"
#: The columns of a query, with the value of a row that each one sets.
SQUEUE = {
    "%i": "job_id",
    "%T": "state",
    "%r": "reason",
    "%S": "start",
    "%N": "nodes",
    "%V": "submitted",
    "%Z": "folder",
    "%j": "name",
    "%o": "command",
    "%e": "end",
}
SACCT = {
    "JobID": "job_id",
    "State": "state",
    "Reason": "reason",
    "Start": "start",
    "NodeList": "nodes",
    "Submit": "submitted",
    "End": "end",
    "WorkDir": "folder",
    "JobName": "name",
    "ExitCode": "exit_code",
    "SubmitLine": "command",
}

# What Slurm prints for a missing value.
_MISSING = {"(null)": "", "None": "", "None assigned": ""}
_JOB_ID = re.compile(r"([0-9]+(?:_(?:0|[1-9][0-9]*))?)(?:[;@]([A-Za-z0-9_.-]+))?")
_SCRIPT_PATH = re.compile(
    rf"(?:^|[/ ]){re.escape(RECORDS)}/([a-z0-9]{{8,20}})/{re.escape(SCRIPT)}$"
)


def parse_job_id(text: str) -> str | None:
    """Return the id of a job or of a task of an array: ``12`` or ``12_3``; None if not valid.

    If there are several clusters, the cluster follows ``@``, which no shell interprets. It follows
    ``;`` in the output of ``sbatch --parsable`` and in ids of earlier releases.

    >>> parse_job_id("12_3;main"), parse_job_id("12_")
    ('12_3@main', None)
    """
    match = _JOB_ID.fullmatch(text)
    if match is None:
        return None
    return f"{match[1]}@{match[2]}" if match[2] else match[1]


def selector(app_id: str) -> str:
    """Return an id without its cluster, as Slurm's commands accept it."""
    return app_id.partition("@")[0]


def cluster_options(app_id: str) -> list[str]:
    """Return the command-line options that select the cluster of a job."""
    cluster = app_id.partition("@")[2]
    return ["--clusters", cluster] if cluster else []


@dataclass
class SlurmJob(JobInfo):
    """A job, a component of a heterogeneous job, or a task of an array, as Slurm lists it.

    Attributes:
        nodes: The nodes, as a list with brackets: ``n[1-4]``.
        folder: Working directory of the job.
        command: Path of the job's script, or the command line of sbatch, which ends with this path;
            empty if the job has no script file.
        expected: When Slurm expects the pending job to start; None if unknown.
        parts: The components of a heterogeneous job, the first of which runs the script, or the
            tasks of an array; empty for other jobs.
        is_queued: Whether the queue lists the job.
    """

    nodes: str = ""
    folder: str = ""
    command: str = ""
    expected: datetime | None = None
    parts: tuple[SlurmJob, ...] = ()
    is_queued: bool = True

    @property
    def mark(self) -> str:
        """Return the mark, a random id that TorchX gives each submission.

        The mark is empty if TorchX did not submit the job. It is part of the script's path, not of
        the comment, because users and sites change comments.
        """
        return mark_of_script(self.command)

    @property
    def is_array(self) -> bool:
        """Whether the parts are tasks of an array."""
        return bool(self.parts) and "_" in self.parts[0].job_id


def mark_of_script(command: str) -> str:
    """Return the mark in the path of a job's script, or an empty string.

    >>> mark_of_script("/home/me/.torchx-slurm/bcdfghjklmnp/torchx-sbatch.sh")
    'bcdfghjklmnp'

    Args:
        command: The path, or a command line that ends with the path.
    """
    match = _SCRIPT_PATH.search(command)
    return match[1] if match else ""


def parse_jobs(
    output: str, columns: Mapping[str, str], *, is_queued: bool = True
) -> Iterator[SlurmJob]:
    """Yield the jobs and the tasks of arrays in the output of squeue or sacct.

    Args:
        output: The output.
        columns: :data:`SQUEUE` or :data:`SACCT`.
        is_queued: Whether the queue lists the jobs.

    Raises:
        BatchError: The output is not a list of jobs.
    """
    split = (line.split(SEPARATOR) for line in output.split("\n"))
    rows = [row for row in split if len(row) == len(columns)]
    separators = output.count(SEPARATOR)
    # A job name with newlines divides a row, but has no separators.
    is_list = separators > 0 and separators % (len(columns) - 1) == 0
    if output.strip() and not is_list and not rows:
        raise BatchError(f"Slurm printed no list of jobs, but {output[:200]!r}; see 'squeue -h'")
    jobs: dict[str, list[SlurmJob]] = {}
    for row in rows:
        values = dict(zip(columns.values(), map(str.strip, row), strict=True))
        part = _part(values, is_queued)
        number = values["job_id"].partition("_")[0].partition("+")[0]
        if number == values["job_id"]:
            yield part
        else:
            jobs.setdefault(number, []).append(part)
    for number, parts in jobs.items():
        yield _whole(number, sorted(parts, key=_order))
        yield from (part for part in parts if "_" in part.job_id)


def _part(values: Mapping[str, str], is_queued: bool) -> SlurmJob:
    """Return the job ``971``, the component ``971+1`` or the task ``971_4`` of a row."""
    number, _, offset = values["job_id"].partition("+")
    name = base_state(values["state"])
    state = appstate_from_slurm_state(name)
    nodes = _MISSING.get(values["nodes"], values["nodes"])
    reason = values["reason"].strip("() ").replace("_", " ")
    start = _time(values["start"])
    # Slurm also sets the start of a job that was cancelled before it got nodes.
    has_started = state != AppState.PENDING and nodes
    return SlurmJob(
        str(int(number) + int(offset)) if offset else number,
        values["name"],
        name,
        reason=_MISSING.get(reason, reason),
        exit_code=_exit_code(values.get("exit_code", "")),
        submitted=_time(values["submitted"]),
        started=start if has_started else None,
        ended=_time(values["end"]) if is_terminal(state) else None,
        nodes=nodes,
        folder=values["folder"],
        command=_MISSING.get(values["command"], values["command"]),
        expected=start if state == AppState.PENDING else None,
        is_queued=is_queued,
    )


def _time(text: str) -> datetime | None:
    """Return a time, which Slurm prints in seconds since 1970; None for a word such as ``N/A``."""
    return moment(int(text)) if text.isdigit() else None


def _exit_code(text: str) -> int | None:
    """Return the exit code in ``code:signal``, negative for a signal; None if unknown."""
    code, _, signal = text.partition(":")
    return -int(signal) or int(code) if code.isdigit() and signal.isdigit() else None


def _order(part: SlurmJob) -> tuple[int, int]:
    """Return the sort key of a component of a heterogeneous job, or of a task of an array.

    The first component or task after sorting decides the state of the job. So an array runs while
    one of its tasks runs, and succeeds if all tasks succeed.
    """
    state = appstate_from_slurm_state(part.state)
    significance = {AppState.PENDING: 1, AppState.SUCCEEDED: 3}
    number = 0 if "_" in part.job_id else int(part.job_id)
    return number, significance.get(state, 2 if is_terminal(state) else 0)


def _whole(number: str, parts: list[SlurmJob]) -> SlurmJob:
    """Return a job with these components, or an array with these tasks."""
    lead = parts[0]
    return replace(
        lead,
        job_id=number,
        submitted=min(_known(part.submitted for part in parts), default=None),
        started=min(_known(part.started for part in parts), default=None),
        ended=lead.ended and max(_known(part.ended for part in parts)),
        parts=tuple(parts),
    )


def _known(times: Iterable[datetime | None]) -> list[datetime]:
    return [when for when in times if when is not None]


def expand_nodes(text: str) -> list[str]:
    """Return the names in a list of nodes with brackets, or the text if it has another form.

    >>> expand_nodes("n[1-3,7],gpu[08-10]")
    ['n1', 'n2', 'n3', 'n7', 'gpu08', 'gpu09', 'gpu10']
    """
    names: list[str] = []
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", item)
        if match is None:
            names.append(item.strip())
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            if not (first.isdigit() and (last or first).isdigit()):
                return [text]
            for number in range(int(first), int(last or first) + 1):
                names += expand_nodes(f"{match[1]}{number:0{len(first)}d}{match[3]}")
    return [name for name in names if name]
