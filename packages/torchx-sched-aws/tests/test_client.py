"""boto3 clients, and the translation of boto3's errors."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import Any

import pytest
from botocore import exceptions as sdk

from torchx_kit.jobs.submission import submission
from torchx_sched_aws.client import (
    AccessDeniedError,
    AwsError,
    Clients,
    ExpiredCredentialsError,
    NoCredentialsError,
    NoRegionError,
    ThrottledError,
    UnreachableError,
    announced,
    aws_errors,
    translate_error,
)


def answer(code: str, message: str = "as AWS says") -> Exception:
    return sdk.ClientError({"Error": {"Code": code, "Message": message}}, "DescribeJobs")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (answer("ExpiredTokenException"), ExpiredCredentialsError, "have expired"),
        (answer("UnrecognizedClientException"), NoCredentialsError, "does not accept"),
        (answer("AccessDeniedException"), AccessDeniedError, "access denied: as AWS says"),
        (
            answer("ClientException", "User x is not authorized to perform: iam:PassRole on y"),
            AccessDeniedError,
            "iam:PassRole on y",
        ),
        (answer("TooManyRequestsException"), ThrottledError, "throttles the requests"),
        (answer("ClientException", "no\n such   queue"), AwsError, "no such queue"),
        (sdk.NoCredentialsError(), NoCredentialsError, "aws sso login"),
        (sdk.NoRegionError(), NoRegionError, "AWS_DEFAULT_REGION"),
        (sdk.ProfileNotFound(profile="mine"), NoCredentialsError, "mine"),
        (
            sdk.UnauthorizedSSOTokenError(),
            ExpiredCredentialsError,
            "aws sso login",
        ),
        (
            sdk.EndpointConnectionError(endpoint_url="http://nowhere"),
            UnreachableError,
            "http://nowhere",
        ),
        (sdk.ParamValidationError(report="bad"), AwsError, "bad"),
    ],
)
def test_sdk_errors_are_translated(error: Exception, kind: type[AwsError], text: str) -> None:
    with pytest.raises(kind, match=f"^cannot do it: .*{text}") as caught, aws_errors("do it"):
        raise error
    message = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in message
    assert caught.value.__cause__ is error
    assert caught.value.exit_code == 3


def test_other_errors_are_raised_unchanged() -> None:
    assert translate_error(ValueError("x"), "do it") is None
    with pytest.raises(ZeroDivisionError), aws_errors("do it"):
        _ = 1 / 0


def test_missing_region_is_an_error() -> None:
    with pytest.raises(NoRegionError, match="no AWS region"):
        Clients().client("batch")


def test_missing_credentials_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    client = Clients().client("batch")
    assert client.meta.region_name == "eu-west-1"
    with pytest.raises(NoCredentialsError, match="look: no AWS credentials"), aws_errors("look"):
        client.describe_job_queues()


def test_unknown_profile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(NoCredentialsError, match="nobody"):
        Clients().client("batch")


def test_unreachable_endpoint_is_an_error(credentials: None) -> None:
    client = Clients().client("batch")
    where = re.escape("AWS_ENDPOINT_URL (http://127.0.0.1:9)")
    with pytest.raises(UnreachableError, match=where), aws_errors("look"):
        client.describe_job_queues()


def test_threads_share_one_client_until_close(credentials: None) -> None:
    clients = Clients()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(clients.client("batch"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    retries = found[0].meta.config.retries
    assert (retries["mode"], retries["total_max_attempts"]) == ("adaptive", 12)
    assert found[0].meta.endpoint_url == "http://127.0.0.1:9"
    clients.close()
    assert clients.client("batch") is not found[0]


def test_retry_settings_of_the_environment_win(
    credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("AWS_RETRY_MODE", "standard")
    retries = Clients().client("batch").meta.config.retries
    assert (retries["mode"], retries["total_max_attempts"]) == ("standard", 2)


def test_given_clients_are_used_and_not_closed() -> None:
    given = object()
    clients = Clients({"batch": given, "logs": None})
    clients.close()
    clients.close()
    assert clients.client("batch") is given


def test_first_request_imports_boto3(credentials: None) -> None:
    code = (
        "import sys, torchx_sched_aws.client as c, torchx_sched_aws.cloudwatch\n"
        "clients = c.Clients()\n"
        "print('boto3' in sys.modules)\n"
        "clients.client('batch')\n"
        "print('boto3' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue\n"


@pytest.mark.parametrize(
    ("error", "may_run"),
    [
        (AwsError("no such queue", "ClientException"), False),
        (AwsError("an error of the service", "ServerException"), True),
        (UnreachableError("no answer"), True),
        (KeyboardInterrupt(), True),
    ],
)
def test_app_is_withdrawn_only_if_aws_has_refused_it(error: BaseException, may_run: bool) -> None:
    with submission() as current:
        current.record = str
        with pytest.raises(type(error)), announced("queue:app"):
            raise error
        assert current.handle == ("queue:app" if may_run else "")
