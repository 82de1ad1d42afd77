"""Queries of jobs with bjobs and of hosts with bhosts, and parsers of their output."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchx_kit.jobs.descriptions import combined_state
from torchx_sched_lsf.client import Lsf, LsfError, UnreachableError
from torchx_sched_lsf.names import cleanup_str, split_job_name
from torchx_sched_lsf.states import Explanation, get_job_state, parse_long_form
from torchx_specs.model.app import Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Stream

_COLUMNS = "jobid stat proj_name job_name exec_host"
_JOB_ID = re.compile(r"(\d+)(\[\d+\])?")
_INDEX = re.compile(r"\[\d+\]\Z")
_NO_JOBS = re.compile(r"\b(no .*job.* found|is not found)\b", re.IGNORECASE)


@dataclass
class Job:
    """A job in the output of bjobs.

    Attributes:
        job_id: The job's id, such as ``101``, or ``101[7]`` for an element of an array.
        stat: State of the job in LSF, such as ``PEND``.
        project: The project; empty if LSF's version lacks ``bjobs -o``.
        name: The job's name.
        host: The first host that runs the job; empty if no host runs it.
    """

    job_id: str
    stat: str
    project: str = ""
    name: str = ""
    host: str = ""

    @property
    def number(self) -> str:
        """The number of the job, which all elements of an array share."""
        return self.job_id.partition("[")[0]

    @property
    def has_ended(self) -> bool:
        """Whether LSF lists the job as ended."""
        return self.stat in ("DONE", "EXIT")


def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
    """Return the jobs with these ids, by id; jobs that LSF does not list are left out.

    The id of an array stands for all its elements.

    Raises:
        LsfError: The query failed.
    """
    if not job_ids:  # without ids, bjobs would list all jobs
        return {}
    return {job.job_id: job for job in _bjobs(lsf, *job_ids)}


def all_jobs(lsf: Lsf) -> list[Job]:
    """Return all jobs of the user that LSF has not forgotten.

    Raises:
        LsfError: The query failed.
    """
    return _bjobs(lsf)


def jobs_of_app(lsf: Lsf, app_id: str) -> list[Job]:
    """Return the jobs whose names begin with an app's id; for an array, the jobs of all elements.

    Raises:
        LsfError: The query failed.
    """
    return [
        job
        for job in all_jobs(lsf)
        if any(split_job_name(app_id, name) for name in (job.name, _INDEX.sub("", job.name)))
    ]


def _bjobs(lsf: Lsf, *job_ids: str) -> list[Job]:
    try:
        return parse_columns(lsf.run_idempotent("bjobs", "-a", "-o", _COLUMNS, *job_ids))
    except UnreachableError:
        raise
    except LsfError as e:
        if not _is_unknown_option(str(e)):
            raise
    return parse_wide(lsf.run_idempotent("bjobs", "-a", "-w", *job_ids))


def explain_jobs(lsf: Lsf, job_ids: list[str]) -> dict[str, Explanation]:
    """Return, by job id, why each job is pending or has ended.

    One query covers all jobs; a second one with ``-l`` follows only if LSF does not know ``-UF``.
    Jobs that LSF does not list are left out. If the query fails, return an empty dictionary.
    """
    if not job_ids:
        return {}
    for form in ("-UF", "-l"):
        try:
            return parse_long_form(lsf.run_idempotent("bjobs", form, *job_ids))
        except LsfError as e:
            if not _is_unknown_option(str(e)):
                break
    return {}


def _is_unknown_option(message: str) -> bool:
    message = message.lower()
    return any(text in message for text in ("illegal option", "invalid option", "usage"))


def parse_columns(output: str) -> list[Job]:
    """Return the jobs in the output of ``bjobs -o`` with columns that contain no spaces.

    Raises:
        LsfError: The output has neither a job nor a heading.
    """
    jobs = []
    for line in output.split("\n"):
        values = line.split()
        job_id = _job_id(values[0], values[3]) if len(values) >= 4 else ""
        if job_id:
            host = values[4] if len(values) > 4 else ""
            jobs.append(Job(job_id, values[1], values[2], values[3], first_host(host)))
    return jobs or _no_jobs(output)


def parse_wide(output: str) -> list[Job]:
    """Return the jobs in the output of ``bjobs -w``, without their projects.

    bjobs prints nothing for an empty column, such as the host of a pending job. The last columns
    are the job's name and the time of the submission, which has three words.

    Raises:
        LsfError: The output has neither a job nor a heading.
    """
    rows = (line.split() for line in output.split("\n"))
    jobs = [
        Job(job_id, row[2], name=row[-4], host=first_host(row[5]) if len(row) > 9 else "")
        for row in rows
        if len(row) > 8 and (job_id := _job_id(row[0], row[-4]))
    ]
    return jobs or _no_jobs(output)


def _no_jobs(output: str) -> list[Job]:
    """Return an empty list if an output of bjobs without rows says that there are no jobs.

    Raises:
        LsfError: The output is anything but a heading, or a message such as "No job found".
    """
    if output.strip() and "JOBID" not in output and not _NO_JOBS.search(output):
        raise LsfError(f"bjobs printed no list of jobs, but {output[:200]!r}; see 'bjobs -a -w'")
    return []


def _job_id(column: str, name: str) -> str:
    """Return the id of a job, or an empty string if the row is a heading.

    The name of an array's element ends with its index, such as ``[7]``. The column ``JOBID`` only
    has the index if ``LSB_BJOBS_DISPLAY_ENH`` is set in ``lsf.conf``.

    Args:
        column: The column ``JOBID``.
        name: The job's name.
    """
    match = _JOB_ID.fullmatch(column)
    if match is None:
        return ""
    index = _INDEX.search(name)
    return f"{match[1]}{match[2] or (index[0] if index else '')}"


def first_host(text: str) -> str:
    """Return the first host in the column ``exec_host``.

    >>> first_host("4*host1:2*host2"), first_host("-")
    ('host1', '')
    """
    host = text.partition(":")[0].rpartition("*")[2]
    return "" if host == "-" else host


# Functions that users of upstream's lsf_scheduler import.


def bjobs_msg_to_describe(app_id: str, msg: str) -> DescribeAppResponse | None:
    """Return the app in the output of ``bjobs -noheader -o "proj name stat exit_code"``.

    Args:
        app_id: The app's id.
        msg: The output.

    Returns:
        The description; None if the output lists no job of the app.
    """
    roles: dict[str, list[ReplicaStatus]] = {}
    states = []
    for line in msg.split("\n"):
        values = line.split()
        replica = split_job_name(app_id, values[1]) if len(values) >= 4 else None
        if replica is None or values[0] != app_id:
            continue
        role, k = replica
        state = get_job_state(values[2], values[3])
        states.append(state)
        roles.setdefault(role, []).append(ReplicaStatus(k, state, role, ""))
    if not states:
        return None
    return DescribeAppResponse(
        app_id=app_id,
        state=combined_state(states),
        msg=msg or NONE,
        roles_statuses=[RoleStatus(role, replicas) for role, replicas in roles.items()],
        roles=[
            Role(role, image="", num_replicas=len(replicas)) for role, replicas in roles.items()
        ],
    )


def bjobs_msg_to_list(msg: str) -> list[ListAppResponse]:
    """Return the apps in the output of ``bjobs -noheader -o "proj stat exit_code"``."""
    states: dict[str, list[AppState]] = {}
    for line in msg.split("\n"):
        values = line.split()
        if len(values) >= 3:
            states.setdefault(values[0], []).append(get_job_state(values[1], values[2]))
    return [
        ListAppResponse(app_id, combined_state(replicas)) for app_id, replicas in states.items()
    ]


def bjobs_msg_to_log_file(
    app_id: str, role_name: str, k: int = 0, streams: Stream | None = None, msg: str = ""
) -> str:
    """Return the path of a log from the output of ``bjobs -noheader -o "proj name output_dir"``.

    Args:
        app_id: The app's id.
        role_name: The role's name.
        k: Index of the replica.
        streams: The stream; None for standard output.
        msg: The output.

    Raises:
        ValueError: The output does not list the replica's job, the job has no directory, or both
            streams are requested.
    """
    if streams == Stream.COMBINED:
        raise ValueError("lsf writes the two streams to two files; request STDOUT or STDERR")
    suffix = "err" if streams == Stream.STDERR else "out"
    name = f"{app_id}-{cleanup_str(role_name)}-{k}"
    for line in msg.split("\n"):
        values = line.split(maxsplit=2)
        if len(values) >= 2 and values[:2] == [app_id, name]:
            folder = values[2].strip() if len(values) > 2 else "-"
            if folder in ("", "-"):
                raise ValueError(
                    f"job {name} has no output directory; its logs are only known with the option"
                    " jobdir"
                )
            return f"{folder}/{name}.{suffix}"
    raise ValueError(f"job {name} does not exist")


def find_rank0_host_from_bhosts_stdout(msg: str, role: Role) -> str:
    """Return a host with a role's resources in output of ``bhosts -noheader -o "hname max ng"``.

    Args:
        msg: The output.
        role: The role.

    Raises:
        ValueError: No host has the resources.
    """
    cpu, gpu = max(role.resource.cpu, 0), max(role.resource.gpu, 0)
    for line in msg.split("\n"):
        values = line.split()
        if len(values) >= 3:
            slots = int(values[1]) if values[1].isdigit() else 0
            gpus = int(values[2]) if values[2].isdigit() else 0
            if slots >= cpu and gpus >= gpu:
                return values[0]
    raise ValueError(f"no host has the {cpu} CPUs and {gpu} GPUs that role '{role.name}' requests")


def find_rank0_host(role: Role) -> str:
    """Query LSF's hosts, and return the first host with a role's resources.

    Args:
        role: The role.

    Raises:
        ValueError: No host has the resources.
        LsfError: LSF cannot be queried.
    """
    output = Lsf().run("bhosts", "-noheader", "-o", "hname max ng")
    return find_rank0_host_from_bhosts_stdout(output, role)
