"""Ids of jobs, and the output of squeue and sacct."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.states import JobInfo
from torchx_kit.times import moment
from torchx_sched_slurm.job_files.script import RECORDS, SCRIPT
from torchx_sched_slurm.states import appstate_from_slurm_state, base_state
from torchx_specs.model.status import AppState, is_terminal

#: Separator of columns: a control character, because names and paths may contain any printable one.
SEPARATOR = "\x1f"
#: The columns of a query, with the field of Component that each one sets.
_SQUEUE = {
    "%i": "task",
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
#: The value of the option ``--format`` of squeue.
SQUEUE_FORMAT = SEPARATOR.join(_SQUEUE)
SACCT_BRIEF = {
    "JobID": "task",
    "State": "state",
    "JobName": "name",
    "ExitCode": "exit_code",
    "Submit": "submitted",
    "Start": "start",
    "End": "end",
    "NodeList": "nodes",
}
SACCT = {
    "JobID": "task",
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

_JOB_ID = re.compile(r"([0-9]+)(?:_(0|[1-9][0-9]*))?(?:[;@]([A-Za-z0-9_.-]+))?")
_SCRIPT_PATH = re.compile(
    rf"(?:^|[/ ]){re.escape(RECORDS)}/([a-z0-9]{{8,20}})/{re.escape(SCRIPT)}$"
)
#: The option that selects a cluster.
CLUSTERS = "--clusters"


@dataclass(frozen=True)
class JobId:
    """The id of a job, or of a task of an array.

    Attributes:
        number: The job's number.
        cluster: Name of the job's cluster if there are several clusters.
        task: The number of the task; empty for a job.
    """

    number: str
    cluster: str = ""
    task: str = ""

    @classmethod
    def parse(cls, app_id: str) -> JobId | None:
        """Return the id of a job or task; None if not valid.

        The cluster follows ``@``, which no shell interprets, or ``;`` in the output of ``sbatch
        --parsable`` and in ids of earlier releases.
        """
        match = _JOB_ID.fullmatch(app_id)
        return cls(match[1], match[3] or "", match[2] or "") if match else None

    @property
    def selector(self) -> str:
        """The id without the cluster, as Slurm's commands accept it."""
        return f"{self.number}_{self.task}" if self.task else self.number

    def options(self) -> tuple[str, ...]:
        """Return the command-line options that select the job's cluster."""
        return (CLUSTERS, self.cluster) if self.cluster else ()

    def __str__(self) -> str:
        return f"{self.selector}@{self.cluster}" if self.cluster else self.selector


def selector(app_id: str) -> str:
    """Return an id without its cluster; the mark of a submission is returned unchanged."""
    job_id = JobId.parse(app_id)
    return job_id.selector if job_id else app_id


class Component(NamedTuple):
    """A component of a job; only heterogeneous jobs have more than one.

    Attributes:
        number: The job's number.
        offset: Index of the component; component 0 runs the script. Tasks of an array have 0.
        state: Name of the state in Slurm.
        reason: Slurm's reason for the state.
        start: Start time, in seconds since 1970; if the job is pending, the start time that Slurm
            expects. Like the other times, it is empty or a word such as ``N/A`` if unknown.
        nodes: The nodes, as a list with brackets: ``n[1-4]``.
        submitted: Time of the submission, in seconds since 1970; for a requeued job, the time at
            which Slurm requeued the job.
        end: End time, in seconds since 1970; if the job has not ended, the latest possible time.
        folder: Working directory of the job.
        name: Name of the job; upstream's TorchX gives each component its own name.
        exit_code: Exit code and signal, in the form ``code:signal``.
        command: Path of the job's script, or the command line of sbatch, which ends with this path.
            Empty if the job has no script file; None if the query does not show it.
        task: Number of the task of an array, or a range of numbers; empty for other jobs.
    """

    number: str
    offset: int
    state: str
    reason: str = ""
    start: str = ""
    nodes: str = ""
    submitted: str = ""
    end: str = ""
    folder: str = ""
    name: str = ""
    exit_code: str = ""
    command: str | None = None
    task: str = ""

    @property
    def mark(self) -> str:
        """Return the mark, a random id that TorchX gives each submission.

        The mark is empty if TorchX did not submit the job. It is part of the script's path, not of
        the comment, because users and sites change comments.
        """
        return mark_of_script(self.command or "")


#: The components of a job, or the tasks of an array.
Job = tuple[Component, ...]


def mark_of_script(command: str) -> str:
    """Return the mark in the path of a job's script, or an empty string.

    >>> mark_of_script("/home/me/.torchx-slurm/bcdfghjklmnp/torchx-sbatch.sh")
    'bcdfghjklmnp'

    Args:
        command: The path, or a command line that ends with the path.
    """
    match = _SCRIPT_PATH.search(command)
    return match[1] if match else ""


@dataclass(frozen=True)
class SlurmJob(JobInfo):
    """A job, or a task of an array, as the queue or accounting lists it.

    Attributes:
        parts: The components of the job, or the tasks of the array.
        is_queued: Whether the queue lists the job.
    """

    parts: Job = ()
    is_queued: bool = True

    @classmethod
    def of(cls, job_id: str, parts: Job, is_queued: bool = True) -> SlurmJob:
        """Return a job with these components."""
        lead = parts[0]
        state = appstate_from_slurm_state(lead.state)
        # Slurm also sets the start of a job that was cancelled before it got nodes.
        has_started = state != AppState.PENDING
        starts = [part.start for part in parts if has_started and part.nodes]
        ends = [part.end for part in parts if is_terminal(state)]
        return cls(
            job_id,
            lead.name,
            lead.state,
            exit_code=_exit_code(lead.exit_code),
            submitted=min(_known(part.submitted for part in parts), default=None),
            started=min(_known(starts), default=None),
            ended=max(_known(ends), default=None),
            parts=parts,
            is_queued=is_queued,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return is_terminal(appstate_from_slurm_state(self.state))


def _known(times: Iterable[str]) -> list[datetime]:
    """Return the times that Slurm knows, of those in the form of :class:`Component`."""
    return [when for text in times if text.isdigit() and (when := moment(int(text)))]


def _exit_code(text: str) -> int | None:
    """Return the exit code in ``code:signal``, negative for a signal; None if unknown."""
    code, _, signal = text.partition(":")
    if not (code.isdigit() and signal.isdigit()):
        return None
    return -int(signal) if int(signal) else int(code)


def slurm_jobs(jobs: Mapping[str, Job], is_queued: bool = True) -> Iterator[SlurmJob]:
    """Yield jobs, and the tasks of arrays.

    Args:
        jobs: The jobs by number.
        is_queued: Whether the queue lists the jobs.
    """
    for number, job in jobs.items():
        yield SlurmJob.of(number, job, is_queued)
        for part in job:
            if part.task:
                yield SlurmJob.of(f"{number}_{part.task}", (part,), is_queued)


def parse_squeue(output: str) -> dict[str, Job]:
    """Return the jobs in squeue's output, by number.

    Raises:
        BatchError: The output is not a list of jobs.
    """
    separators = output.count(SEPARATOR)
    # A job name with newlines divides a row, but has no separators.
    is_list = separators > 0 and separators % (len(_SQUEUE) - 1) == 0
    if output.strip() and not is_list and not _rows(output, len(_SQUEUE)):
        raise BatchError(f"squeue printed no list of jobs, but {output[:200]!r}; see 'squeue -h'")
    return _jobs(_components(output, _SQUEUE))


def parse_sacct(output: str, columns: Mapping[str, str] = SACCT) -> dict[str, Job]:
    """Return the jobs in sacct's output, by number.

    Args:
        output: The output.
        columns: The columns that were requested, with their fields of :class:`Component`.
    """
    return _jobs(_components(output, columns))


def _components(output: str, columns: Mapping[str, str]) -> Iterator[Component]:
    """Yield the components of ``971``, ``971+0`` (heterogeneous) or ``971_4`` (array)."""
    for values in _rows(output, len(columns)):
        fields = dict(zip(columns.values(), values, strict=True))
        job_id, _, fields["task"] = fields["task"].partition("_")
        number, _, offset = job_id.partition("+")
        fields["state"] = base_state(fields["state"])
        for name in ("command", "nodes"):
            if fields.get(name) in ("(null)", "None assigned"):
                fields[name] = ""
        if "." not in job_id + fields["task"]:  # 17.batch is a step of a job
            yield Component(number, int(offset) if offset.isdigit() else 0, **fields)


def _rows(output: str, columns: int) -> list[list[str]]:
    rows: list[list[str]] = []
    for line in output.split("\n"):
        values = line.split(SEPARATOR)
        # skip broken rows: a job name may contain a newline
        if len(values) == columns:
            rows.append([value.strip() for value in values])
    return rows


def _jobs(components: Iterable[Component]) -> dict[str, Job]:
    jobs: dict[str, list[Component]] = {}
    for component in components:
        jobs.setdefault(component.number, []).append(component)
    return {
        number: tuple(sorted(job, key=_order) if len(job) > 1 else job)
        for number, job in jobs.items()
    }


def _order(component: Component) -> tuple[int, int]:
    """Return the sort key of a component of a heterogeneous job, or of a task of an array.

    The first component or task after sorting decides the state of the job. So an array runs while
    one of its tasks runs, and succeeds if all tasks succeed.
    """
    state = appstate_from_slurm_state(component.state)
    significance = {AppState.PENDING: 1, AppState.SUCCEEDED: 3}
    return component.offset, significance.get(state, 2 if is_terminal(state) else 0)


def expand_nodes(text: str, limit: int = 100_000) -> list[str]:
    """Return the names in a list of nodes with brackets, or the text if it has another form.

    >>> expand_nodes("n[1-3,7],gpu[08-10]")
    ['n1', 'n2', 'n3', 'n7', 'gpu08', 'gpu09', 'gpu10']

    Args:
        text: The list.
        limit: Stop after about this many names.
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
                if len(names) > limit:
                    return names
    return [name for name in names if name]
