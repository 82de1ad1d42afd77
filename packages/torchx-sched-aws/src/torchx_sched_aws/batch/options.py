"""The options of ``aws_batch``, and what is checked of them without asking AWS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torchx_sched_aws.tags import current_user
from torchx_specs.errors import nearest
from torchx_specs.options.structured import StructuredOpts

#: Highest ``priority``.
MOST_PRIORITY = 9999
#: Shortest ``timeout``, in seconds.
LEAST_TIMEOUT = 60
#: How many rules a retry strategy has at most.
MOST_RULES = 5
#: How many of them TorchX adds.
OWN_RULES = 2
#: What a rule looks at, and Batch's name for it.
RULE_CONDITIONS = {
    "exit_code": "onExitCode",
    "reason": "onReason",
    "status_reason": "onStatusReason",
}
RULE_ACTIONS = ("RETRY", "EXIT")

_ARN = re.compile(r"arn:[a-z-]+:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:\S+")
_ROLE_ARN = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/\S+")
_SHARE = re.compile(r"[A-Za-z0-9]{1,255}")
# = is as good as :, but on the command line it would begin another option
_ULIMIT = re.compile(r"([a-z]+)[:=](-?[0-9]+)(?::(-?[0-9]+))?")
_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)
_RULE = re.compile(r"([^:=]+)[:=](.+):([A-Za-z]+)", re.S)
_PATTERN = {
    "exit_code": re.compile(r"[0-9]+\*?|\*"),
    "reason": re.compile(r"[A-Za-z0-9.:\s]*\*?"),
    "status_reason": re.compile(r"[A-Za-z0-9.:\s]*\*?"),
}
_LONGEST_PATTERN = 512


@dataclass
class AWSBatchOpts(StructuredOpts):
    """Options of ``aws_batch``."""

    queue: str
    """job queue, by name or ARN"""

    user: str = field(default_factory=current_user)
    """who submits, for the tags; the current user unless given"""

    privileged: bool = False
    """runs the containers with all rights on their machine, as docker run --privileged does"""

    share_id: str | None = None
    """share identifier; needed if the queue has a scheduling policy, and only then"""

    priority: int = 0
    """priority among the jobs of the same share_id, 0 to 9999, higher first"""

    job_role_arn: str | None = None
    """IAM role that the containers assume"""

    execution_role_arn: str | None = None
    """IAM role with which the container agent pulls images, reads secrets and writes logs"""

    timeout: int | None = None
    """seconds after which an attempt is ended, 60 at least"""

    retry_rules: list[str] | None = None
    """when to retry (max_retries of the roles says how often); the first that matches wins, and
    where one says RETRY, what none matches is not retried:
    exit_code:137:RETRY;status_reason:Host EC2*:RETRY;reason:CannotPull*:EXIT"""

    shm_mb: int | None = None
    """shared memory of a container in MB, its whole memory unless given"""

    ulimits: list[str] | None = None
    """limits as name:soft or name:soft:hard: memlock:-1;nofile:65536:65536"""

    secrets: dict[str, str] | None = None
    """variables that Batch fills in itself: name:ARN of a secret or parameter"""

    log_group: str | None = None
    """CloudWatch log group, /aws/batch/job unless given"""

    depends_on: list[str] | None = None
    """jobs to wait for: ids of Batch"""

    propagate_tags: bool = False
    """gives the tags to the tasks of the container service, too"""


def problems_of(opts: AWSBatchOpts) -> Iterator[str]:
    """Yields what is wrong with the options, one line each."""
    if not opts.queue or not _queue_is_valid(opts.queue):
        yield f"option queue: '{opts.queue}' is neither the name nor the ARN of a job queue"
    if opts.share_id is not None and not _SHARE.fullmatch(opts.share_id):
        yield f"option share_id: '{opts.share_id}' has something else than letters and digits"
    if not 0 <= opts.priority <= MOST_PRIORITY:
        yield f"option priority: {opts.priority} is not between 0 and {MOST_PRIORITY}"
    for key in ("job_role_arn", "execution_role_arn"):
        value = opts[key]
        if value is not None and not _ROLE_ARN.fullmatch(str(value)):
            yield (
                f"option {key}: '{value}' is no role's ARN;"
                " it is of the form arn:aws:iam::123456789012:role/name"
            )
    if opts.timeout is not None and opts.timeout < LEAST_TIMEOUT:
        yield f"option timeout: {opts.timeout} is less than {LEAST_TIMEOUT} seconds"
    if opts.shm_mb is not None and opts.shm_mb < 1:
        yield f"option shm_mb: {opts.shm_mb} is less than 1"
    for text in opts.ulimits or ():
        found = _ULIMIT.fullmatch(text)
        if found is None:
            yield f"option ulimits: '{text}' is not of the form name:soft or name:soft:hard"
        elif found[1] not in _ULIMITS:
            yield (
                f"option ulimits: there is no limit '{found[1]}';{nearest(found[1], _ULIMITS)}"
                f" valid names: {', '.join(_ULIMITS)}"
            )
    for name, arn in (opts.secrets or {}).items():
        if not _ARN.fullmatch(arn) and not re.fullmatch(r"/?[\w./-]+", arn):
            yield f"option secrets: '{name}:{arn}' is not of the form name:ARN"
    yield from _rule_problems(opts.retry_rules or [])


def ulimit(text: str) -> dict[str, object]:
    """Returns ``name:soft[:hard]`` as Batch wants it; checked by :func:`problems_of`."""
    name, soft, *hard = re.split("[:=]", text)
    return {"name": name, "softLimit": int(soft), "hardLimit": int((hard or [soft])[0])}


def rule(text: str) -> dict[str, str]:
    """Returns ``condition:pattern:ACTION`` as Batch wants it; checked by :func:`problems_of`."""
    condition, rest = re.split("[:=]", text, maxsplit=1)
    pattern, _, action = rest.rpartition(":")
    return {RULE_CONDITIONS[condition]: pattern, "action": action.upper()}


def queue_name(queue: str) -> str:
    """Returns the name of a queue that was given by name or ARN."""
    return queue.rpartition("job-queue/")[2]


def _queue_is_valid(queue: str) -> bool:
    name = queue_name(queue)
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", name) is not None and (
        name == queue or _ARN.fullmatch(queue) is not None
    )


def _rule_problems(rules: list[str]) -> Iterator[str]:
    for text in rules:
        found = _RULE.fullmatch(text)
        if found is None:
            yield (
                f"option retry_rules: '{text}' is not of the form condition:pattern:ACTION, e.g."
                " exit_code:137:RETRY"
            )
            continue
        condition, pattern, action = found.groups()
        if condition not in RULE_CONDITIONS:
            yield (
                f"option retry_rules: '{text}' looks at '{condition}';"
                f"{nearest(condition, RULE_CONDITIONS)} valid: {', '.join(RULE_CONDITIONS)}"
            )
        elif len(pattern) > _LONGEST_PATTERN or not _PATTERN[condition].fullmatch(pattern):
            kind = "a number" if condition == "exit_code" else "letters, digits, spaces, . and :"
            yield (
                f"option retry_rules: '{pattern}' cannot be matched with {condition}: {kind},"
                " with a * at the end if need be"
            )
        if action.upper() not in RULE_ACTIONS:
            yield f"option retry_rules: '{text}' ends in neither :RETRY nor :EXIT"
    if len(rules) > MOST_RULES - OWN_RULES:
        most = MOST_RULES - OWN_RULES
        yield f"option retry_rules: {len(rules)} rules, Batch takes {most} beside TorchX's own"
