"""Checks of credentials, job queues and IAM roles, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torchx_kit.checks import describe_missing, error, ok, on_this_machine, warning
from torchx_sched_aws.batch.submit import list_queues
from torchx_sched_aws.client import (
    AccessDeniedError,
    AwsError,
    Clients,
    ExpiredCredentialsError,
    NoCredentialsError,
    NoRegionError,
    UnreachableError,
    aws_errors,
)
from torchx_specs.errors import one_line
from torchx_specs.options.run_options import CfgVal
from torchx_specs.plugins.check_results import CheckResult

_LOG_IN = "run 'aws configure' or 'aws sso login', or set AWS_PROFILE"
_SET_REGION = "set AWS_DEFAULT_REGION, such as us-east-1"
_REMEDIES: dict[type[AwsError], str] = {
    NoCredentialsError: _LOG_IN,
    ExpiredCredentialsError: _LOG_IN,
    NoRegionError: _SET_REGION,
    AccessDeniedError: "ask for a policy that allows this action",
    UnreachableError: "check the network, the region, HTTPS_PROXY and AWS_ENDPOINT_URL",
}
_SECONDS = 4


def check_credentials(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether boto3, credentials and a region exist, and whether AWS accepts the credentials.

    Args:
        cfg: The scheduler's options, which this check ignores.
    """
    try:
        from boto3 import __version__ as library
    except ImportError as e:
        yield error(f"boto3 cannot be imported: {e}", "run: pip install boto3")
        return
    clients = _clients()
    try:
        with aws_errors("find the credentials"):
            session = clients.session()
            found = session.get_credentials()
            if found is None:
                yield error(f"boto3 {library}: no AWS credentials are configured", _LOG_IN)
                return
            region = session.region_name
            yield ok(f"boto3 {library}, credentials from {found.method}")
        if not region:
            yield error("no AWS region is configured", _SET_REGION)
            return
        identity = clients.call("sts", "get_caller_identity", "check the credentials")
        yield ok(f"AWS accepts the credentials of {identity['Arn']} in {region}")
    except AwsError as e:
        yield _failed(e)


def check_batch(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether the job queue is valid and enabled, and whether the IAM roles exist.

    Args:
        cfg: The options of ``aws_batch``; without ``queue``, all job queues are checked.
    """
    yield from _check_service(_check_queues, cfg, "job_role_arn", "execution_role_arn")


def check_sagemaker(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether training jobs may be listed, and whether the IAM role exists.

    Args:
        cfg: The options of ``aws_sagemaker``.
    """
    yield from _check_service(_check_training_jobs, cfg, "role")


def _check_service(
    check: Callable[[Clients, Mapping[str, CfgVal]], Iterator[CheckResult]],
    cfg: Mapping[str, CfgVal],
    *roles: str,
) -> Iterator[CheckResult]:
    """Yield the results of a check of a service, and whether IAM roles exist.

    Args:
        check: Checks the service with boto3 clients and the scheduler's options.
        cfg: The scheduler's options.
        roles: The options that name roles.
    """
    clients = _clients()
    try:
        session = clients.session()
        if not session.region_name or session.get_credentials() is None:
            return  # check_credentials reports the problem
    except Exception:  # boto3 is missing, or its configuration is broken
        return
    try:
        yield from check(clients, cfg)
    except AwsError as e:
        yield _failed(e)
    for option in roles:
        yield from _check_role(clients, option, str(cfg.get(option) or ""))


def _check_queues(clients: Clients, cfg: Mapping[str, CfgVal]) -> Iterator[CheckResult]:
    wanted = str(cfg.get("queue") or "")
    queues = list(list_queues(clients))
    found = [q for q in queues if wanted in ("", q["jobQueueName"], q["jobQueueArn"])]
    problems = [
        f"job queue {queue['jobQueueName']} is {queue['state']} and {queue['status']}"
        f" {queue.get('statusReason', '')}".strip()
        for queue in found
        if queue["state"] != "ENABLED" or queue["status"] != "VALID"
    ]
    remedy = "enable the queue, or correct its compute environments, in the console of AWS Batch"
    for problem in problems:
        yield error(problem, remedy) if wanted else warning(problem, remedy)
    if found and not problems:
        yield ok(f"job queues: {', '.join(queue['jobQueueName'] for queue in found)}")
    elif wanted and not found:
        names = [queue["jobQueueName"] for queue in queues]
        yield describe_missing("job queue", wanted, names, "queue")
    elif not found:
        remedy = "create one, or set another region"
        yield warning("the account has no job queue in this region", remedy)


def _check_training_jobs(clients: Clients, cfg: Mapping[str, CfgVal]) -> Iterator[CheckResult]:
    clients.call("sagemaker", "list_training_jobs", "list training jobs", MaxResults=1)
    yield ok("training jobs can be listed")


def _check_role(clients: Clients, option: str, role: str) -> Iterator[CheckResult]:
    """Yield whether an IAM role exists.

    Args:
        clients: The boto3 clients to use.
        option: The option that names the role.
        role: Name or ARN of the role; if it is empty, yield nothing.
    """
    if not role:
        return
    name = role.rpartition("/")[2]
    try:
        clients.call("iam", "get_role", f"read role {name}", RoleName=name)
        yield ok(f"option {option}: role {name} exists")
    except AccessDeniedError as e:
        yield warning(e, "ask for iam:GetRole, if this check shall tell whether the role exists")
    except AwsError as e:
        remedy = f"create the role, or set the option {option} to another one"
        yield error(e, remedy) if e.code == "NoSuchEntity" else _failed(e)


def _failed(problem: AwsError) -> CheckResult:
    unknown = f"look up the error in AWS's documentation: {one_line(problem.code)}"
    return error(problem, _REMEDIES.get(type(problem), unknown))


def _clients() -> Clients:
    seconds = on_this_machine(_SECONDS)
    retries = {"total_max_attempts": 1}
    return Clients(retries=retries, connect_timeout=seconds, read_timeout=seconds)
