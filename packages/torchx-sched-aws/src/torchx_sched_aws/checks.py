"""Checks of credentials, job queues and IAM roles, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchx_kit.checks import describe_missing, error, ok, on_this_machine, warning
from torchx_sched_aws.client import (
    AccessDeniedError,
    AwsError,
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
_ATTEMPTS = 1
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
    try:
        with aws_errors("find the credentials"):
            session = _session()
            found = session.get_credentials()
            if found is None:
                yield error(f"boto3 {library}: no AWS credentials are configured", _LOG_IN)
                return
            region = session.region_name
            yield ok(f"boto3 {library}, credentials from {found.method}")
        if not region:
            yield error("no AWS region is configured", _SET_REGION)
            return
        with aws_errors("check the credentials"):
            identity = _client(session, "sts").get_caller_identity()
        yield ok(f"AWS accepts the credentials of {identity['Arn']} in {region}")
    except AwsError as e:
        yield _failed(e)


def check_batch(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether the job queue is valid and enabled, and whether the IAM roles exist.

    Args:
        cfg: The options of ``aws_batch``; without ``queue``, all job queues are checked.
    """
    session = _usable_session()
    if session is None:
        return  # check_credentials reports the problem
    wanted = str(cfg.get("queue") or "")
    try:
        with aws_errors("list the job queues"):
            pages = _client(session, "batch").get_paginator("describe_job_queues").paginate()
            queues = [queue for page in pages for queue in page["jobQueues"]]
        found = [q for q in queues if wanted in ("", q["jobQueueName"], q["jobQueueArn"])]
        if found:
            yield from _check_queues(found, bool(wanted))
        elif wanted:
            names = [queue["jobQueueName"] for queue in queues]
            yield describe_missing("job queue", wanted, names, "queue")
        else:
            remedy = "create one, or set another region"
            yield warning("the account has no job queue in this region", remedy)
    except AwsError as e:
        yield _failed(e)
    for option in ("job_role_arn", "execution_role_arn"):
        yield from _check_role(session, option, str(cfg.get(option) or ""))


def _check_queues(queues: list[dict[str, Any]], is_wanted: bool) -> Iterator[CheckResult]:
    problems = [
        f"job queue {queue['jobQueueName']} is {queue['state']} and {queue['status']}"
        f" {queue.get('statusReason', '')}".strip()
        for queue in queues
        if queue["state"] != "ENABLED" or queue["status"] != "VALID"
    ]
    remedy = "enable the queue, or correct its compute environments, in the console of AWS Batch"
    for problem in problems:
        yield error(problem, remedy) if is_wanted else warning(problem, remedy)
    if not problems:
        yield ok(f"job queues: {', '.join(queue['jobQueueName'] for queue in queues)}")


def check_sagemaker(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether training jobs may be listed, and whether the IAM role exists.

    Args:
        cfg: The options of ``aws_sagemaker``.
    """
    session = _usable_session()
    if session is None:
        return  # check_credentials reports the problem
    try:
        with aws_errors("list training jobs"):
            _client(session, "sagemaker").list_training_jobs(MaxResults=1)
        yield ok("training jobs can be listed")
    except AwsError as e:
        yield _failed(e)
    yield from _check_role(session, "role", str(cfg.get("role") or ""))


def _check_role(session: Any, option: str, role: str) -> Iterator[CheckResult]:
    """Yield whether an IAM role exists.

    Args:
        session: The boto3 session.
        option: The option that names the role.
        role: Name or ARN of the role; if it is empty, yield nothing.
    """
    if not role:
        return
    name = role.rpartition("/")[2]
    try:
        with aws_errors(f"read role {name}"):
            _client(session, "iam").get_role(RoleName=name)
        yield ok(f"option {option}: role {name} exists")
    except AccessDeniedError as e:
        yield warning(e, "ask for iam:GetRole, if this check shall tell whether the role exists")
    except AwsError as e:
        remedy = f"create the role, or set the option {option} to another one"
        yield error(e, remedy) if e.code == "NoSuchEntity" else _failed(e)


def _failed(problem: AwsError) -> CheckResult:
    unknown = f"look up the error in AWS's documentation: {one_line(problem.code)}"
    return error(problem, _REMEDIES.get(type(problem), unknown))


def _usable_session() -> Any:
    """Return a session with credentials and a region, or None if either is missing."""
    try:
        session = _session()
        return session if session.region_name and session.get_credentials() is not None else None
    except Exception:  # boto3 is missing, or its configuration is broken
        return None


def _session() -> Any:
    from boto3.session import Session

    return Session()


def _client(session: Any, service: str) -> Any:
    from botocore.config import Config

    return session.client(
        service,
        config=Config(
            retries={"total_max_attempts": _ATTEMPTS},
            connect_timeout=on_this_machine(_SECONDS),
            read_timeout=on_this_machine(_SECONDS),
        ),
    )
