"""Names of ``lsf_scheduler`` in older TorchX releases. TorchX itself needs none of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.jobs.descriptions import combined_state
from torchx_kit.scripts.shell import join
from torchx_sched_lsf.options import LsfOpts
from torchx_sched_lsf.request import LsfRequest, docker_options
from torchx_sched_lsf.states import STATES
from torchx_sched_lsf.system import Lsf
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Stream

JOB_STATE: dict[str, AppState] = {name: state.phase.app_state for name, state in STATES.items()}


def cleanup_str(data: str) -> str:
    """Convert a name to lower case; drop one leading dash, and all but a-z, 0-9, ``-`` and ``_``.

    >>> cleanup_str("-My App!")
    'myapp'
    """
    return re.sub(r"[^a-z0-9_-]", "", data.removeprefix("-").lower())


def get_job_state(state_str: str, exit_code: str) -> AppState:
    """Return the AppState for a state of LSF and an exit code, of which 130 stands for bkill.

    Args:
        state_str: LSF's state, such as ``PEND``.
        exit_code: The exit code; empty or ``-`` if there is none.
    """
    state = JOB_STATE.get(state_str, AppState.UNKNOWN)
    return AppState.CANCELLED if state_str == "EXIT" and exit_code == "130" else state


def _opts(cfg: Mapping[str, Any]) -> LsfOpts:
    return cfg if isinstance(cfg, LsfOpts) else LsfOpts.from_cfg(cfg)


@dataclass
class LsfBsub:
    """The request for an app.

    Attributes:
        jobdir: Directory of the logs; None means the current directory.
        app_id: The app's id, with which the names of its jobs begin.
        app: The app.
        cfg: The options.
        cmd: Ignored.
    """

    jobdir: str | None
    app_id: str
    app: AppDef
    cfg: Mapping[str, Any]
    cmd: list[str] = field(default_factory=lambda: ["/bin/bash"])

    def materialize(self, rank0_host: str = "RANK0_HOST") -> str:
        """Return the script of the jobs; ``rank0_host`` is ignored."""
        request = LsfRequest(Lsf(), self.app_id, self.app, _opts(self.cfg), self.jobdir or "")
        return request.materialize()


def get_docker_command(job_name: str, role: Role, cfg: Mapping[str, Any]) -> str:
    """Return a ``docker run`` command line for a role; macros are not substituted.

    Args:
        job_name: Name of the container.
        role: The role.
        cfg: The options.
    """
    argv = ["docker", "run", f"--name={job_name}", *docker_options(role, _opts(cfg))]
    for key, value in role.env.items():
        argv += ["-e", f"{key}={value}"]
    return join([*argv, "--entrypoint", role.entrypoint, "--rm", role.image, *role.args])


def get_command(job_name: str, role: Role, cfg: Mapping[str, Any]) -> str:
    """Return the command of :func:`get_docker_command`; with ``jobdir``, its output goes to files.

    Args:
        job_name: Name of the container, and of the output files without suffix.
        role: The role.
        cfg: The options.
    """
    command = get_docker_command(job_name, role, cfg)
    base = f"{cfg.get('jobdir')}/{job_name}"
    if not cfg.get("jobdir"):
        return command
    return f"{command} > {join([base + '.out'])} 2> {join([base + '.err'])}"


def get_bsub(
    app_id: str,
    job_name: str,
    role: Role,
    cfg: Mapping[str, Any],
    head_job_name: str,
    head_job_host: str,
) -> str:
    """Return the command line of bsub for a replica, without the job's command.

    Args:
        app_id: The app's id.
        job_name: Name of the replica's job.
        role: The role.
        cfg: The options.
        head_job_name: Name of the first job, which the other jobs wait for.
        head_job_host: Host for the first job; the other jobs run on other hosts.
    """
    place = ["-w", f"started({head_job_name})", "-R", f"select[hname!='{head_job_host}']"]
    if job_name == head_job_name:
        place = ["-m", head_job_host]
    return join(["bsub", "-P", app_id, "-J", job_name, *place, *Lsf().options(role, _opts(cfg))])


def get_submit_script(
    app_id: str, cmd: list[str], app: AppDef, cfg: Mapping[str, Any], rank0_host: str
) -> str:
    """Return the script of an app's jobs; ``cmd`` and ``rank0_host`` are ignored."""
    return LsfBsub(cfg.get("jobdir"), app_id, app, cfg, cmd).materialize(rank0_host)


def bjobs_msg_to_describe(app_id: str, msg: str) -> DescribeAppResponse | None:
    """Return the app in the output of ``bjobs -noheader -o "proj name stat exit_code"``.

    Args:
        app_id: The app's id.
        msg: The output.

    Returns:
        The description; None if the output lists no job of the app.
    """
    roles: dict[str, list[ReplicaStatus]] = {}
    for line in msg.splitlines():
        values = line.split()
        found = re.fullmatch(rf"{re.escape(app_id)}-(.+)-(\d+)", values[1]) if values[3:] else None
        if found and values[0] == app_id:
            state = get_job_state(values[2], values[3])
            roles.setdefault(found[1], []).append(ReplicaStatus(int(found[2]), state, found[1], ""))
    if not roles:
        return None
    states = [replica.state for replicas in roles.values() for replica in replicas]
    return DescribeAppResponse(
        app_id=app_id,
        state=combined_state(states),
        msg=msg,
        roles_statuses=[RoleStatus(role, replicas) for role, replicas in roles.items()],
        roles=[Role(role, image="", num_replicas=len(found)) for role, found in roles.items()],
    )


def bjobs_msg_to_list(msg: str) -> list[ListAppResponse]:
    """Return the apps in the output of ``bjobs -noheader -o "proj stat exit_code"``."""
    states: dict[str, list[AppState]] = {}
    for values in map(str.split, msg.splitlines()):
        if len(values) >= 3:
            states.setdefault(values[0], []).append(get_job_state(values[1], values[2]))
    return [ListAppResponse(app_id, combined_state(found)) for app_id, found in states.items()]


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
    name = f"{app_id}-{cleanup_str(role_name)}-{k}"
    for line in msg.splitlines():
        values = line.split(maxsplit=2)
        if values[:2] == [app_id, name] and values[2:] and values[2].strip() != "-":
            return f"{values[2].strip()}/{name}.{'err' if streams == Stream.STDERR else 'out'}"
    raise ValueError(f"job {name} does not exist, or has no output directory (option jobdir)")


def find_rank0_host_from_bhosts_stdout(msg: str, role: Role) -> str:
    """Return a host with a role's resources in output of ``bhosts -noheader -o "hname max ng"``.

    Args:
        msg: The output.
        role: The role.

    Raises:
        ValueError: No host has the resources.
    """
    cpu, gpu = max(role.resource.cpu, 0), max(role.resource.gpu, 0)
    for values in map(str.split, msg.splitlines()):
        amounts = [int(text) if text.isdigit() else 0 for text in values[1:3]]
        if len(amounts) == 2 and amounts[0] >= cpu and amounts[1] >= gpu:
            return values[0]
    raise ValueError(f"no host has the {cpu} CPUs and {gpu} GPUs that role '{role.name}' requests")


def find_rank0_host(role: Role) -> str:
    """Query LSF's hosts, and return the first host with a role's resources.

    Args:
        role: The role.

    Raises:
        ValueError: No host has the resources.
        BatchError: LSF cannot be queried.
    """
    output = Lsf().run("bhosts", "-noheader", "-o", "hname max ng")
    return find_rank0_host_from_bhosts_stdout(output, role)
