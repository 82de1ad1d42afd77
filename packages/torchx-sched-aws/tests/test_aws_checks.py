"""Tests of the checks for ``torchx doctor``, with botocore's Stubber instead of AWS."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.stub import Stubber

from torchx_sched_aws import checks

ARN = "arn:aws:iam::123456789012:user/me"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, credentials: None) -> Iterator[Callable[..., Stubber]]:
    """Return a function that stubs the client of a service; the stub checks each request."""
    clients = checks._clients()
    stubs: dict[str, Stubber] = {}

    def stubbed(service: str) -> Stubber:
        if service not in stubs:
            stubs[service] = Stubber(clients.client(service))
            stubs[service].activate()
        return stubs[service]

    monkeypatch.setattr(checks, "_clients", lambda: clients)
    yield stubbed
    for one in stubs.values():
        one.assert_no_pending_responses()


def results(check: Any, **cfg: Any) -> list[tuple[str, str]]:
    return [(result.level, result.message) for result in check(cfg)]


def queue(name: str, state: str = "ENABLED", status: str = "VALID") -> dict[str, Any]:
    return {
        "jobQueueName": name,
        "jobQueueArn": f"arn:aws:batch:us-east-1:123456789012:job-queue/{name}",
        "state": state,
        "status": status,
        "priority": 1,
        "computeEnvironmentOrder": [],
    }


def test_without_boto3_one_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "boto3"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)
    [result] = checks.check_credentials({})
    assert (result.level, result.remedy) == ("error", "run: pip install boto3")
    assert list(checks.check_batch({})) == []
    assert list(checks.check_sagemaker({})) == []


def test_without_credentials_the_remedy_is_to_log_in() -> None:
    [result] = checks.check_credentials({})
    assert result.level == "error"
    assert result.message.endswith("no AWS credentials are configured")
    assert "aws sso login" in result.remedy
    assert list(checks.check_batch({})) == []


def test_without_a_region_the_variable_is_named(
    credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    found, region = checks.check_credentials({})
    assert found.message.endswith("credentials from env")
    assert (region.level, region.message) == ("error", "no AWS region is configured")
    assert "AWS_DEFAULT_REGION" in region.remedy


def test_the_identity_is_shown_and_no_secret(stub: Any) -> None:
    identity = {"Arn": ARN, "Account": "123456789012", "UserId": "AIDA"}
    stub("sts").add_response("get_caller_identity", identity)
    rows = results(checks.check_credentials)
    assert rows[1] == ("ok", f"AWS accepts the credentials of {ARN} in us-east-1")
    assert "test" not in str(rows)


def test_refused_credentials_are_an_error(stub: Any) -> None:
    stub("sts").add_client_error("get_caller_identity", "ExpiredToken", "expired", 403)
    result = list(checks.check_credentials({}))[1]
    assert result.level == "error"
    assert "aws sso login" in result.remedy


def test_an_endpoint_that_does_not_answer_is_an_error(credentials: None) -> None:
    result = list(checks.check_credentials({}))[1]
    assert result.level == "error"
    assert "AWS did not answer" in result.message


def test_job_queues(stub: Any) -> None:
    batch = stub("batch")
    batch.add_response("describe_job_queues", {"jobQueues": [queue("a"), queue("b")]})
    assert results(checks.check_batch) == [("ok", "job queues: a, b")]
    batch.add_response("describe_job_queues", {"jobQueues": [queue("a", "DISABLED")]})
    assert results(checks.check_batch, queue="a") == [
        ("error", "job queue a is DISABLED and VALID")
    ]
    batch.add_response("describe_job_queues", {"jobQueues": [queue("a"), queue("b")]}, {})
    assert results(checks.check_batch, queue="c") == [
        ("error", "there is no job queue 'c'; job queues: a, b")
    ]


def test_a_denied_action_asks_for_a_policy(stub: Any) -> None:
    stub("batch").add_client_error("describe_job_queues", "AccessDeniedException", "no", 403)
    [result] = checks.check_batch({})
    assert (result.level, result.remedy) == ("error", "ask for a policy that allows this action")


def test_roles_of_the_options_are_looked_up(stub: Any) -> None:
    stub("sagemaker").add_response("list_training_jobs", {"TrainingJobSummaries": []})
    stub("iam").add_client_error("get_role", "NoSuchEntity", "not found", 404)
    rows = list(checks.check_sagemaker({"role": "arn:aws:iam::123456789012:role/team/train"}))
    assert [row.level for row in rows] == ["ok", "error"]
    assert "option role" in rows[1].remedy
    stub("sagemaker").add_response("list_training_jobs", {"TrainingJobSummaries": []})
    stub("iam").add_client_error("get_role", "AccessDenied", "no", 403)
    assert [row.level for row in checks.check_sagemaker({"role": "train"})] == ["ok", "warning"]
