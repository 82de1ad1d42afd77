"""Queries of jobs with bjobs, and parsers of its output."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_sched_lsf.client import Lsf, LsfError, UnreachableError
from torchx_sched_lsf.names import cleanup_str, split_job_name
from torchx_sched_lsf.states import Explanation, get_job_state, parse_long_form
from torchx_specs.model.app import Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Stream

_COLUMNS = "jobid stat proj_name job_name exec_host"


@dataclass
class Job:
    """A job in the output of bjobs.

    Attributes:
        job_id: The job's id.
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
    def has_ended(self) -> bool:
        """Whether LSF lists the job as ended."""
        return self.stat in ("DONE", "EXIT")


def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
    """Return the jobs with these ids, by id; jobs that LSF does not list are left out.

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
    """Return the jobs whose names begin with an app's id.

    Raises:
        LsfError: The query failed.
    """
    return [job for job in all_jobs(lsf) if split_job_name(app_id, job.name)]


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
    """Return the jobs in the output of ``bjobs -o``; none of the columns contains a space."""
    jobs = []
    for line in output.split("\n"):
        values = line.split()
        if len(values) >= 4 and values[0].isdigit():  # not the heading
            host = values[4] if len(values) > 4 else ""
            jobs.append(Job(values[0], values[1], values[2], values[3], first_host(host)))
    return jobs


def parse_wide(output: str) -> list[Job]:
    """Return the jobs in the output of ``bjobs -w``, without their projects.

    bjobs prints nothing for an empty column, such as the host of a pending job. The last columns
    are the job's name and the time of the submission, which has three words.
    """
    rows = (line.split() for line in output.split("\n"))
    return [
        Job(row[0], row[2], name=row[-4], host=first_host(row[5]) if len(row) > 9 else "")
        for row in rows
        if len(row) > 8 and row[0].isdigit()
    ]


def first_host(text: str) -> str:
    """Return the first host in the column ``exec_host``.

    >>> first_host("4*host1:2*host2"), first_host("-")
    ('host1', '')
    """
    host = text.partition(":")[0].rpartition("*")[2]
    return "" if host == "-" else host


def combined_state(states: list[AppState]) -> AppState:
    """Return the state of an app from the states of its replicas.

    An app runs as long as one of its replicas runs, even if another has failed.
    """
    order = (
        AppState.RUNNING,
        AppState.PENDING,
        AppState.FAILED,
        AppState.CANCELLED,
        AppState.UNKNOWN,
    )
    return next((state for state in order if state in states), AppState.SUCCEEDED)


# -- functions that users of upstream's lsf_scheduler import


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
    """Return a host with the role's resources from ``bhosts -noheader -o "hname max ng"``.

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
    """Return a host of LSF with the role's resources.

    Args:
        role: The role.

    Raises:
        ValueError: No host has the resources.
        LsfError: LSF cannot be queried.
    """
    output = Lsf().run("bhosts", "-noheader", "-o", "hname max ng")
    return find_rank0_host_from_bhosts_stdout(output, role)
