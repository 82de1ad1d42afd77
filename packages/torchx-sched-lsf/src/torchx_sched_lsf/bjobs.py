"""Reading what LSF's queries print."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_sched_lsf.client import Lsf, LsfError, UnreachableError
from torchx_sched_lsf.names import cleanup_str, split_job_name
from torchx_sched_lsf.states import explain, get_job_state
from torchx_specs.model.app import Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Stream

_COLUMNS = "jobid stat proj_name job_name exec_host"


@dataclass
class Job:
    """What bjobs says of one job: its states, and where it runs."""

    job_id: str
    stat: str
    project: str = ""
    name: str = ""
    host: str = ""


def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
    """Returns the jobs that LSF knows of those, by id.

    Raises:
        LsfError: it cannot be asked
    """
    try:
        return {
            job.job_id: job for job in read_jobs(lsf.ask("bjobs", "-a", "-o", _COLUMNS, *job_ids))
        }
    except UnreachableError:
        raise
    except LsfError as e:
        if not _is_unknown_option(str(e)):
            raise
    return {job.job_id: job for job in read_wide(lsf.ask("bjobs", "-a", "-w", *job_ids))}


def jobs_of_project(lsf: Lsf, app_id: str | None = None) -> list[Job]:
    """Returns this user's jobs of one project, or of all; of an older system without their names.

    Raises:
        LsfError: it cannot be asked
    """
    which = ("-P", app_id) if app_id else ()
    try:
        return read_jobs(lsf.ask("bjobs", "-a", *which, "-o", _COLUMNS))
    except UnreachableError:
        raise
    except LsfError as e:
        if not _is_unknown_option(str(e)):
            raise
    if not app_id:
        return []  # an older system does not say in one line what belongs to which project
    jobs = read_wide(lsf.ask("bjobs", "-a", "-w", *which))
    return [Job(job.job_id, job.stat, app_id) for job in jobs]


def ending_of(lsf: Lsf, job_id: str) -> tuple[str, int | None, bool]:
    """Returns why a job waits or has ended, its exit code, and whether somebody has ended it.

    Nothing, if it can't be asked: that only adds to what is known otherwise.
    """
    for form in ("-UF", "-l"):
        try:
            return explain(lsf.run("bjobs", form, job_id))
        except LsfError as e:
            if not _is_unknown_option(str(e)):
                break
    return "", None, False


def _is_unknown_option(said: str) -> bool:
    return any(words in said.lower() for words in ("illegal option", "invalid option", "usage"))


def read_jobs(out: str) -> list[Job]:
    """Reads ``bjobs -o``; a heading is left out. None of the columns holds a blank."""
    jobs = []
    for line in out.split("\n"):
        values = line.split()
        if len(values) >= 4 and values[0].isdigit():
            host = values[4] if len(values) > 4 else ""
            jobs.append(Job(values[0], values[1], values[2], values[3], first_host(host)))
    return jobs


def read_wide(out: str) -> list[Job]:
    """Reads ``bjobs -w``: of it only what stands before the columns that may be empty."""
    rows = (line.split() for line in out.split("\n"))
    return [Job(row[0], row[2]) for row in rows if len(row) > 3 and row[0].isdigit()]


def first_host(text: str) -> str:
    """Returns the first of a job's hosts.

    >>> first_host("4*host1:2*host2"), first_host("-")
    ('host1', '')
    """
    host = text.partition(":")[0].rpartition("*")[2]
    return "" if host == "-" else host


# -- names that older code imports


def bjobs_msg_to_describe(app_id: str, msg: str) -> DescribeAppResponse | None:
    """Reads ``bjobs -noheader -o "proj name stat exit_code"``; None if it is empty."""
    roles: dict[str, list[ReplicaStatus]] = {}
    states = []
    for line in msg.split("\n"):
        values = line.split()
        found = split_job_name(app_id, values[1]) if len(values) >= 4 else None
        if found is None or values[0] != app_id:
            continue
        role, k = found
        state = get_job_state(values[2], values[3])
        states.append(state)
        roles.setdefault(role, []).append(ReplicaStatus(k, state, role, ""))
    if not states:
        return None
    return DescribeAppResponse(
        app_id=app_id,
        state=combined(states),
        msg=msg or NONE,
        roles_statuses=[RoleStatus(role, replicas) for role, replicas in roles.items()],
        roles=[Role(role, image="", num_replicas=len(them)) for role, them in roles.items()],
    )


def combined(states: list[AppState]) -> AppState:
    """Returns the state of an app by those of its replicas.

    It runs as long as one of them does, even if another has failed.
    """
    order = (
        AppState.RUNNING,
        AppState.PENDING,
        AppState.FAILED,
        AppState.CANCELLED,
        AppState.UNKNOWN,
    )
    return next((state for state in order if state in states), AppState.SUCCEEDED)


def bjobs_msg_to_list(msg: str) -> list[ListAppResponse]:
    """Reads ``bjobs -noheader -o "proj stat exit_code"``."""
    states: dict[str, list[AppState]] = {}
    for line in msg.split("\n"):
        values = line.split()
        if len(values) >= 3:
            states.setdefault(values[0], []).append(get_job_state(values[1], values[2]))
    return [ListAppResponse(app_id, combined(them)) for app_id, them in states.items()]


def bjobs_msg_to_log_file(
    app_id: str, role_name: str, k: int = 0, streams: Stream | None = None, msg: str = ""
) -> str:
    """Reads ``bjobs -noheader -o "proj name output_dir"``; returns the path of a log.

    Raises:
        ValueError: no such job, no folder, or both streams asked for
    """
    if streams == Stream.COMBINED:
        raise ValueError("lsf keeps the two streams in two files")
    suffix = "err" if streams == Stream.STDERR else "out"
    name = f"{app_id}-{cleanup_str(role_name)}-{k}"
    for line in msg.split("\n"):
        values = line.split(maxsplit=2)
        if len(values) >= 2 and values[:2] == [app_id, name]:
            folder = values[2].strip() if len(values) > 2 else "-"
            if folder in ("", "-"):
                raise ValueError(f"job {name} has no jobdir, so its logs are in no known folder")
            return f"{folder}/{name}.{suffix}"
    raise ValueError(f"no job {name}")


def find_rank0_host_from_bhosts_stdout(msg: str, role: Role) -> str:
    """Reads ``bhosts -noheader -o "hname max ng"``; returns a host that has what a role asks for.

    Raises:
        ValueError: there is none
    """
    cpu, gpu = max(role.resource.cpu, 0), max(role.resource.gpu, 0)
    for line in msg.split("\n"):
        values = line.split()
        if len(values) >= 3:
            slots = int(values[1]) if values[1].isdigit() else 0
            gpus = int(values[2]) if values[2].isdigit() else 0
            if slots >= cpu and gpus >= gpu:
                return values[0]
    raise ValueError(f"no host has the {cpu} CPUs and {gpu} GPUs that role {role.name} asks for")


def find_rank0_host(role: Role) -> str:
    """Asks LSF for a host that has what a role asks for.

    Raises:
        ValueError: there is none
        LsfError: LSF cannot be asked
    """
    out = Lsf().run("bhosts", "-noheader", "-o", "hname max ng")
    return find_rank0_host_from_bhosts_stdout(out, role)
