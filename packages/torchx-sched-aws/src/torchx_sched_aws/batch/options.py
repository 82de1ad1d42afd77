"""Options of ``aws_batch``, and the checks that need no request to AWS."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torchx_kit.jobs.attempts import AttemptOpts
from torchx_sched_aws.limits import apply_time, range_problems, time_problems
from torchx_sched_aws.tags import current_user, make_tags, tag_problems
from torchx_specs.errors import nearest
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource
from torchx_specs.schedulers.request_checks import RequestRules

# Smallest and largest values of options; botocore's model of Batch has none.
_RANGES = {
    "priority": {"min": 0, "max": 9999},
    "timeout": {"min": 60},
    "shm_mb": {"min": 1},
}
_ARN = r"arn:[a-z-]+:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:"
# What is wrong with an option that does not match.
_ROLE = (
    r"arn:[a-z-]+:iam::[0-9]{12}:role/\S+",
    "is not the ARN of a role (arn:aws:iam::123456789012:role/NAME)",
)
_FORMS = {
    "queue": (
        rf"({_ARN}job-queue/)?[A-Za-z0-9][A-Za-z0-9_-]{{0,127}}",
        "is not a valid name or ARN of a job queue",
    ),
    "share_id": (r"[A-Za-z0-9]{1,255}", "may contain only letters and digits"),
    "job_role_arn": _ROLE,
    "execution_role_arn": _ROLE,
}
# "=" is accepted instead of ":", but cannot be used in -cfg, where it begins another option.
_ULIMIT = re.compile(r"([a-z]+)[:=](-?[0-9]+)(?::(-?[0-9]+))?")
_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)
#: Capability of a resource whose value is the instance type.
INSTANCE_TYPE = "node.kubernetes.io/instance-type"

DEVICE_PERMISSIONS = {"r": "READ", "w": "WRITE", "m": "MKNOD"}

# Quotas of AWS Batch.
MAX_ROLES = 5
#: The largest number of attempts in a retry strategy.
MAX_ATTEMPTS = 10
#: Minimum memory of a Batch container, in MB.
MIN_MEMORY_MB = 4
#: Batch reserves environment variables with this prefix.
RESERVED_PREFIX = "AWS_BATCH"
RULES = RequestRules(
    needs_resource=False,
    needs_entrypoint=True,
    needs_image=True,
    max_retries=MAX_ATTEMPTS - 1,
)
_EFS = re.compile(r"fs-[0-9a-f]+(?::(?:fsap-[0-9a-f]+|/.*))?", re.S)


@dataclass
class AWSBatchOpts(AttemptOpts):
    """Options of ``aws_batch``."""

    queue: str
    """Job queue, by name or ARN."""

    user: str = field(default_factory=current_user)
    """User to name in the job's tags (default: the current user)."""

    privileged: bool = False
    """Run the containers in privileged mode, like `docker run --privileged`."""

    share_id: str | None = None
    """Share identifier; required if the queue has a scheduling policy, invalid otherwise."""

    priority: int = 0
    """Scheduling priority among jobs with the same share_id, 0 to 9999 (highest)."""

    job_role_arn: str | None = None
    """IAM role of the containers."""

    execution_role_arn: str | None = None
    """IAM role of the container agent, which pulls images, reads secrets and writes logs."""

    timeout: int | None = None
    """End an attempt after this many seconds, at least 60 (default: no limit)."""

    time: str | None = None
    """End an attempt after this time with a unit, at least 60s: 90s, 30m, 2h or 1-12:00 (days,
    hours and minutes); the same as timeout."""

    shm_mb: int | None = None
    """Size of /dev/shm in MB (default: the memory of the container)."""

    ulimits: list[str] | None = None
    """Set ulimits, each as name:soft or name:soft:hard. Example:
    ulimits=memlock:-1;nofile:65536:65536"""

    secrets: dict[str, str] | None = None
    """Set environment variables from Secrets Manager or the Parameter Store, each as name:ARN;
    Batch reads the values."""

    log_group: str | None = None
    """CloudWatch log group (default: /aws/batch/job)."""

    depends_on: list[str] | None = None
    """Start after these jobs have succeeded; ids of Batch jobs."""

    propagate_tags: bool = False
    """Copy the job's tags to its ECS tasks."""

    array: bool = True
    """Submit the apps of a sweep that differ only in arguments and variables as children of an
    array job; their image needs sh."""

    def __post_init__(self) -> None:
        apply_time(self, "timeout")


def request_problems(app: AppDef, opts: AWSBatchOpts) -> Iterator[str]:
    """Yield every problem of an app and its options, one line each."""
    yield from option_problems(opts)
    if len(app.roles) > MAX_ROLES:
        yield f"the app has {len(app.roles)} roles; a Batch job has at most {MAX_ROLES} node groups"
    yield from tag_problems(make_tags(app.name, opts.user, app.metadata))
    for role in app.roles:
        yield from (f"role '{role.name}': {problem}" for problem in _role_problems(role))
        for name in opts.secrets or ():
            if name in role.env:
                yield f"option secrets: '{name}' is also set in the env of role '{role.name}'"
    kinds = {instance_type(role.resource) for role in app.roles} - {None}
    if len(kinds) > 1:
        yield (
            "the roles need different instance types"
            f" ({', '.join(sorted(map(str, kinds)))}); a multi-node job has one"
        )


def _role_problems(role: Role) -> Iterator[str]:
    for name in role.env:
        if name.startswith(RESERVED_PREFIX):
            yield f"env['{name}']: Batch reserves variables that begin with {RESERVED_PREFIX}"
    resource = role.resource
    if resource.memMB < MIN_MEMORY_MB:
        yield (
            f"its resource has memMB={resource.memMB}, Batch needs {MIN_MEMORY_MB} or more; set"
            " Role.resource, for example to Resource(cpu=2, gpu=0, memMB=4096)"
        )
    if resource.gpu != int(resource.gpu):
        yield f"its resource has gpu={resource.gpu}; Batch needs a whole number"
    for mount in role.mounts:
        yield from _mount_problems(mount)


def _mount_problems(mount: object) -> Iterator[str]:
    if not isinstance(mount, (BindMount, VolumeMount, DeviceMount)):
        yield f"{mount!r:.99} is not a BindMount, VolumeMount or DeviceMount"
        return
    paths = [mount.dst_path]
    if not isinstance(mount, VolumeMount):
        paths.append(mount.src_path)
    elif not _EFS.fullmatch(mount.src):
        yield (
            f"volume '{mount.src}' is not an EFS file system; use fs-12345678,"
            " fs-12345678:/folder or fs-12345678:fsap-12345678"
        )
    if isinstance(mount, DeviceMount) and (
        not mount.permissions or not set(mount.permissions) <= DEVICE_PERMISSIONS.keys()
    ):
        yield (
            f"device '{mount.src_path}' has permissions '{mount.permissions}'; use one or more"
            " of r, w and m"
        )
    for path in paths:
        if not os.path.isabs(path):
            yield f"mount path '{path}' is not absolute"


def instance_type(resource: Resource) -> str | None:
    """Return the instance type that a resource names, or None."""
    found = resource.capabilities.get(INSTANCE_TYPE)
    return str(found) if found else None


def option_problems(opts: AWSBatchOpts) -> Iterator[str]:
    """Yield every problem of the options, one line each."""
    yield from time_problems(opts, "timeout")
    for name, (form, problem) in _FORMS.items():
        value = opts[name]
        if value is not None and not re.fullmatch(form, str(value)):
            yield f"option {name}: '{value}' {problem}"
    for name, limit in _RANGES.items():
        number = opts[name]
        if isinstance(number, int):
            yield from range_problems(number, f"option {name}", limit)
    for text in opts.ulimits or ():
        found = _ULIMIT.fullmatch(text)
        if found is None:
            yield f"option ulimits: '{text}' is not of the form name:soft or name:soft:hard"
        elif found[1] not in _ULIMITS:
            yield (
                f"option ulimits: unknown limit '{found[1]}';{nearest(found[1], _ULIMITS)}"
                f" valid names: {', '.join(_ULIMITS)}"
            )
    for name, arn in (opts.secrets or {}).items():
        if not re.fullmatch(rf"{_ARN}\S+|/?[\w./-]+", arn):
            yield f"option secrets: '{name}:{arn}' is not of the form name:ARN"


def parse_ulimit(text: str) -> dict[str, object]:
    """Return ``name:soft[:hard]`` in Batch's form.

    The text must be valid; :func:`option_problems` checks it.
    """
    name, soft, *hard = re.split("[:=]", text)
    return {"name": name, "softLimit": int(soft), "hardLimit": int((hard or [soft])[0])}


def queue_name(queue: str) -> str:
    """Return the name of a queue that is given by name or ARN."""
    return queue.rpartition("job-queue/")[2]
