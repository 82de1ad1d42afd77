"""Submitting: what is asked of AWS, answered by botocore's Stubber, which knows the models."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_sched_aws.batch.submit import TAG_FINGERPRINT, fingerprint
from torchx_sched_aws.client import AccessDeniedError, AwsError
from torchx_specs import AppDef, Resource, Role
from torchx_specs.errors import RequestError

ARN = "arn:aws:batch:us-east-1:123456789012:job-definition/torchx-app:4"


@pytest.fixture
def stubber(credentials: None) -> Stubber:
    stubber = Stubber(boto3.client("batch"))
    stubber.activate()
    return stubber


@pytest.fixture
def scheduler(stubber: Stubber) -> AWSBatchScheduler:
    return AWSBatchScheduler("test", client=stubber.client)


def dry_run(scheduler: AWSBatchScheduler, **cfg: Any) -> Any:
    resource = Resource(cpu=1, gpu=0, memMB=64)
    app = AppDef("app", [Role("main", "image", entrypoint="sh", resource=resource)])
    return scheduler.submit_dryrun(app, {"queue": "queue", **cfg})


def queue(**fields: Any) -> dict[str, Any]:
    found = {
        "jobQueueName": "queue",
        "jobQueueArn": "arn:aws:batch:us-east-1:123456789012:job-queue/queue",
        "state": "ENABLED",
        "status": "VALID",
        "priority": 1,
        "computeEnvironmentOrder": [],
    }
    return {"jobQueues": [{**found, **fields}]}


def definition(tags: dict[str, str]) -> dict[str, Any]:
    return {
        "jobDefinitionName": "torchx-app",
        "jobDefinitionArn": ARN,
        "revision": 4,
        "type": "container",
        "tags": tags,
    }


def expect_queue(stubber: Stubber, **fields: Any) -> None:
    stubber.add_response("describe_job_queues", queue(**fields), {"jobQueues": ["queue"]})


def expect_definitions(stubber: Stubber, *definitions: dict[str, Any]) -> None:
    stubber.add_response(
        "describe_job_definitions",
        {"jobDefinitions": list(definitions)},
        {"jobDefinitionName": "torchx-app", "status": "ACTIVE"},
    )


def expect_registration(stubber: Stubber, info: Any, arn: str) -> None:
    tags = {**info.request.job_def["tags"], TAG_FINGERPRINT: fingerprint(info.request.job_def)}
    stubber.add_response(
        "register_job_definition",
        {"jobDefinitionName": "torchx-app", "jobDefinitionArn": arn, "revision": 5},
        {**info.request.job_def, "tags": tags},
    )


def expect_submission(stubber: Stubber, info: Any, arn: str) -> None:
    stubber.add_response(
        "submit_job",
        {"jobName": info.request.name, "jobId": "id"},
        info.request.submit_words(arn),
    )


def test_a_definition_that_is_new_is_registered(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber, definition({}), definition({TAG_FINGERPRINT: "other"}))
    expect_registration(stubber, info, "new")
    expect_submission(stubber, info, "new")
    assert scheduler.schedule(info) == info.request.app_id
    stubber.assert_no_pending_responses()


def test_a_definition_that_is_the_same_is_used_again(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler)
    other = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber, definition({TAG_FINGERPRINT: fingerprint(other.request.job_def)}))
    expect_submission(stubber, info, ARN)
    scheduler.schedule(info)
    stubber.assert_no_pending_responses()


def test_a_definition_deregistered_meanwhile(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber, definition({TAG_FINGERPRINT: fingerprint(info.request.job_def)}))
    stubber.add_client_error("submit_job", "ClientException", "JobDefinition is not ACTIVE")
    expect_registration(stubber, info, "new")
    expect_submission(stubber, info, "new")
    scheduler.schedule(info)
    stubber.assert_no_pending_responses()


def test_without_the_right_to_look_it_is_submitted_all_the_same(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler)
    stubber.add_client_error("describe_job_queues", "AccessDeniedException")
    stubber.add_client_error("describe_job_definitions", "AccessDeniedException")
    expect_registration(stubber, info, "new")
    expect_submission(stubber, info, "new")
    scheduler.schedule(info)


@pytest.mark.parametrize(
    ("fields", "cfg", "message"),
    [
        ({"state": "DISABLED"}, {}, "'queue' is disabled"),
        ({"status": "INVALID", "statusReason": "no subnet"}, {}, "not valid: no subnet"),
        ({"schedulingPolicyArn": "arn"}, {}, "needs one: -cfg share_id=NAME"),
        ({}, {"share_id": "team"}, "has no scheduling policy"),
    ],
)
def test_queues_that_do_not_take_it(
    scheduler: AWSBatchScheduler,
    stubber: Stubber,
    fields: dict[str, Any],
    cfg: dict[str, Any],
    message: str,
) -> None:
    info = dry_run(scheduler, **cfg)
    expect_queue(stubber, **fields)
    with pytest.raises(RequestError, match=message) as caught:
        scheduler.schedule(info)
    assert caught.value.exit_code == 2


def test_a_queue_that_does_not_exist(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    info = dry_run(scheduler, queue="quee")
    stubber.add_response("describe_job_queues", {"jobQueues": []}, {"jobQueues": ["quee"]})
    stubber.add_response("describe_job_queues", queue(), {})
    with pytest.raises(RequestError, match=r"'quee' in us-east-1; did you mean 'queue'\?"):
        scheduler.schedule(info)


def test_a_role_that_is_refused(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    info = dry_run(scheduler, job_role_arn="arn:aws:iam::123456789012:role/other")
    expect_queue(stubber)
    expect_definitions(stubber)
    said = "User: me is not authorized to perform: iam:PassRole on resource: other"
    stubber.add_client_error("register_job_definition", "ClientException", said)
    with pytest.raises(AccessDeniedError, match=r"cannot register .*iam:PassRole on resource"):
        scheduler.schedule(info)


def test_other_refusals(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    info = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber)
    expect_registration(stubber, info, "new")
    stubber.add_client_error("submit_job", "ClientException", "too many\njobs")
    with pytest.raises(AwsError, match=r"cannot submit app-\w+ to the queue queue: too many jobs"):
        scheduler.schedule(info)


def job(**fields: Any) -> dict[str, Any]:
    found = {
        "jobId": "id",
        "jobArn": "arn:aws:batch:us-east-1:123456789012:job/id",
        "jobName": "name",
        "jobQueue": "queue",
        "status": "RUNNING",
        "startedAt": 1,
        "jobDefinition": ARN,
        "container": {},
    }
    return {"jobs": [{**found, **fields}]}


def expect_found(stubber: Stubber, **fields: Any) -> None:
    """What is asked before anything is done with an app."""
    stubber.add_response(
        "list_jobs",
        {"jobSummaryList": [{"jobId": "x", "jobName": "NAME"}, {"jobId": "id", "jobName": "name"}]},
        {"jobQueue": "queue", "filters": [{"name": "JOB_NAME", "values": ["name"]}]},
    )
    for _ in range(2):
        stubber.add_response("describe_jobs", job(**fields), {"jobs": ["id"]})


@pytest.mark.parametrize("status", ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"])
def test_cancelling_what_has_not_ended(
    scheduler: AWSBatchScheduler, stubber: Stubber, status: str
) -> None:
    expect_found(stubber, status=status)
    reason = "cancelled by TorchX"
    stubber.add_response("terminate_job", {}, {"jobId": "id", "reason": reason})
    scheduler.cancel("queue:name")
    stubber.assert_no_pending_responses()


def test_cancelling_what_has_ended(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    expect_found(stubber, status="SUCCEEDED")
    scheduler.cancel("queue:name")
    stubber.assert_no_pending_responses()


@pytest.mark.parametrize("gone", [False, True])
def test_deleting_deregisters(scheduler: AWSBatchScheduler, stubber: Stubber, gone: bool) -> None:
    expect_found(stubber)
    stubber.add_response("terminate_job", {}, {"jobId": "id", "reason": "deleted by TorchX"})
    stubber.add_response("tag_resource", {}, {"resourceArn": ANY, "tags": ANY})
    if gone:
        stubber.add_client_error("deregister_job_definition", "ClientException", "not found")
    else:
        stubber.add_response("deregister_job_definition", {}, {"jobDefinition": ARN})
    scheduler.delete("queue:name")
    stubber.assert_no_pending_responses()


def test_what_was_deleted_is_unknown(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    expect_found(stubber, status="SUCCEEDED", tags={"torchx.pytorch.org/deleted": "true"})
    assert scheduler.describe("queue:name") is None


@pytest.mark.parametrize(
    "app_id", ["", "name", "a:b:c", "a b:c", "queue:", ":name", "q:" + "x" * 200]
)
def test_ids_that_no_app_has_are_not_looked_for(scheduler: AWSBatchScheduler, app_id: str) -> None:
    assert scheduler.describe(app_id) is None
