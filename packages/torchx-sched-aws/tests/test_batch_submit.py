"""Submission of Batch jobs; botocore's Stubber checks requests and responses against its models."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from torchx_sched_aws.batch.options import INSTANCE_TYPE
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_sched_aws.batch.submit import TAG_DIGEST, definition_digest
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


def dry_run(scheduler: AWSBatchScheduler, instance_type: str = "", **cfg: Any) -> Any:
    capabilities = {INSTANCE_TYPE: instance_type} if instance_type else {}
    resource = Resource(cpu=1, gpu=0, memMB=64, capabilities=capabilities)
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
    tags = {**info.request.job_def["tags"], TAG_DIGEST: definition_digest(info.request.job_def)}
    stubber.add_response(
        "register_job_definition",
        {"jobDefinitionName": "torchx-app", "jobDefinitionArn": arn, "revision": 5},
        {**info.request.job_def, "tags": tags},
    )


def expect_submission(stubber: Stubber, info: Any, arn: str) -> None:
    stubber.add_response(
        "submit_job",
        {"jobName": info.request.name, "jobId": "id"},
        info.request.submit_parameters(arn),
    )


def test_new_definition_is_registered(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    info = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber, definition({}), definition({TAG_DIGEST: "other"}))
    expect_registration(stubber, info, "new")
    expect_submission(stubber, info, "new")
    assert scheduler.schedule(info) == info.request.app_id
    stubber.assert_no_pending_responses()


def test_equal_definition_is_reused(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
    info = dry_run(scheduler)
    other = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber, definition({TAG_DIGEST: definition_digest(other.request.job_def)}))
    expect_submission(stubber, info, ARN)
    scheduler.schedule(info)
    stubber.assert_no_pending_responses()


def test_definition_deregistered_in_the_meantime_is_registered_again(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler)
    expect_queue(stubber)
    expect_definitions(stubber, definition({TAG_DIGEST: definition_digest(info.request.job_def)}))
    stubber.add_client_error("submit_job", "ClientException", "JobDefinition is not ACTIVE")
    expect_registration(stubber, info, "new")
    expect_submission(stubber, info, "new")
    scheduler.schedule(info)
    stubber.assert_no_pending_responses()


def test_job_is_submitted_without_describe_permissions(
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
        ({"status": "INVALID", "statusReason": "no subnet"}, {}, "is invalid: no subnet"),
        ({"schedulingPolicyArn": "arn"}, {}, "needs a share identifier: -cfg share_id=NAME"),
        ({}, {"share_id": "team"}, "has no scheduling policy"),
    ],
)
def test_queue_that_cannot_accept_the_job_is_an_error(
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


def environment(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "computeEnvironmentName": "e",
        "computeEnvironmentArn": "arn:e",
        "ecsClusterArn": "arn:c",
        "type": "MANAGED",
        "computeResources": {"type": kind, "maxvCpus": 4, "subnets": ["s"]},
        **fields,
    }


def expect_environments(stubber: Stubber, *environments: dict[str, Any], **fields: Any) -> None:
    order = [{"order": 1, "computeEnvironment": "arn:e"}]
    expect_queue(stubber, computeEnvironmentOrder=order, **fields)
    stubber.add_response(
        "describe_compute_environments",
        {"computeEnvironments": list(environments)},
        {"computeEnvironments": ["arn:e"]},
    )


@pytest.mark.parametrize(
    ("environments", "fields", "message"),
    [
        ([environment("FARGATE")], {}, "runs its jobs on Fargate"),
        ([environment("FARGATE_SPOT")], {}, "runs its jobs on Fargate"),
        ([environment("EC2")], {"jobQueueType": "ECS_FARGATE"}, "runs its jobs on Fargate"),
        ([environment("EC2", containerOrchestrationType="EKS")], {}, "Amazon EKS.*-s kubernetes"),
        ([], {"jobQueueType": "EKS"}, "Amazon EKS"),
        ([], {"jobQueueType": "SAGEMAKER_TRAINING"}, "-s aws_sagemaker"),
        ([environment("SPOT")], {}, "or a resource without an instance type"),
        ([environment("", type="UNMANAGED", computeResources=None)], {}, "unmanaged instances"),
    ],
)
def test_queue_whose_instances_cannot_run_the_job_is_an_error(
    scheduler: AWSBatchScheduler,
    stubber: Stubber,
    environments: list[dict[str, Any]],
    fields: dict[str, Any],
    message: str,
) -> None:
    for item in environments:
        if item["computeResources"] is None:
            del item["computeResources"]
    info = dry_run(scheduler, instance_type="p4d.24xlarge")
    expect_environments(stubber, *environments, **fields)
    with pytest.raises(RequestError, match=message) as caught:
        scheduler.schedule(info)
    assert caught.value.exit_code == 2


def test_spot_queue_runs_a_job_of_one_container(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler)
    expect_environments(stubber, environment("SPOT"))
    expect_definitions(stubber)
    expect_registration(stubber, info, "new")
    expect_submission(stubber, info, "new")
    scheduler.schedule(info)


def test_unknown_queue_is_an_error_with_a_hint(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler, queue="quee")
    stubber.add_response("describe_job_queues", {"jobQueues": []}, {"jobQueues": ["quee"]})
    stubber.add_response("describe_job_queues", queue(), {})
    with pytest.raises(
        RequestError, match=r"'quee' does not exist in us-east-1; did you mean 'queue'\?"
    ):
        scheduler.schedule(info)


def test_missing_pass_role_permission_is_access_denied(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    info = dry_run(scheduler, job_role_arn="arn:aws:iam::123456789012:role/other")
    expect_queue(stubber)
    expect_definitions(stubber)
    message = "User: me is not authorized to perform: iam:PassRole on resource: other"
    stubber.add_client_error("register_job_definition", "ClientException", message)
    with pytest.raises(AccessDeniedError, match=r"cannot register .*iam:PassRole on resource"):
        scheduler.schedule(info)


def test_other_errors_of_batch_are_reported(scheduler: AWSBatchScheduler, stubber: Stubber) -> None:
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
        "tags": {"torchx.pytorch.org/version": "1"},
    }
    return {"jobs": [{**found, **fields}]}


def expect_found(stubber: Stubber, **fields: Any) -> None:
    """Expect the requests that find an app's job before it is cancelled or deleted."""
    stubber.add_response(
        "list_jobs",
        {"jobSummaryList": [{"jobId": "x", "jobName": "NAME"}, {"jobId": "id", "jobName": "name"}]},
        {"jobQueue": "queue", "filters": [{"name": "JOB_NAME", "values": ["name"]}]},
    )
    stubber.add_response("describe_jobs", job(**fields), {"jobs": ["id"]})


@pytest.mark.parametrize("status", ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"])
def test_cancel_terminates_an_active_job(
    scheduler: AWSBatchScheduler, stubber: Stubber, status: str
) -> None:
    expect_found(stubber, status=status)
    reason = "cancelled by TorchX"
    stubber.add_response("terminate_job", {}, {"jobId": "id", "reason": reason})
    scheduler.cancel("queue:name")
    stubber.assert_no_pending_responses()


def expect_deletion(stubber: Stubber, *others: dict[str, Any]) -> None:
    """Expect the requests of a deletion, up to those that list the jobs of the definition.

    Args:
        stubber: The stub of Batch.
        others: Further jobs of the same definition.
    """
    expect_found(stubber)
    stubber.add_response("terminate_job", {}, {"jobId": "id", "reason": "deleted by TorchX"})
    stubber.add_response("tag_resource", {}, {"resourceArn": ANY, "tags": ANY})
    stubber.add_response("describe_job_queues", queue(), {})
    ids = ["id", *(other["jobId"] for other in others)]
    summaries = [{"jobId": job_id, "jobName": "n", "jobDefinition": ARN} for job_id in ids]
    # Some implementations of the API ignore the filter, and list jobs of other definitions.
    summaries.append({"jobId": "y", "jobName": "n", "jobDefinition": f"{ARN}4"})
    stubber.add_response(
        "list_jobs",
        {"jobSummaryList": summaries},
        {"jobQueue": "queue", "filters": [{"name": "JOB_DEFINITION", "values": [ARN]}]},
    )
    if others:
        stubber.add_response("describe_jobs", {"jobs": list(others)}, {"jobs": ids[1:]})


DELETED_JOB = job(jobId="deleted", tags={"torchx.pytorch.org/deleted": "true"})["jobs"][0]


@pytest.mark.parametrize("others", [(), (DELETED_JOB,)])
@pytest.mark.parametrize("already_deregistered", [False, True])
def test_delete_deregisters_a_definition_without_other_jobs(
    scheduler: AWSBatchScheduler,
    stubber: Stubber,
    others: tuple[dict[str, Any], ...],
    already_deregistered: bool,
) -> None:
    expect_deletion(stubber, *others)
    if already_deregistered:
        stubber.add_client_error("deregister_job_definition", "ClientException", "not found")
    else:
        stubber.add_response("deregister_job_definition", {}, {"jobDefinition": ARN})
    scheduler.delete("queue:name")
    stubber.assert_no_pending_responses()


@pytest.mark.parametrize("status", ["RUNNABLE", "SUCCEEDED"])
def test_delete_keeps_a_definition_that_another_job_uses(
    scheduler: AWSBatchScheduler, stubber: Stubber, status: str
) -> None:
    expect_deletion(stubber, job(jobId="other", status=status)["jobs"][0])
    scheduler.delete("queue:name")
    stubber.assert_no_pending_responses()


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_job_of_another_tool_is_not_ended(
    scheduler: AWSBatchScheduler, stubber: Stubber, action: str
) -> None:
    expect_found(stubber, tags={"team": "vision"})
    with pytest.raises(RequestError, match="TorchX did not submit this job") as caught:
        getattr(scheduler, action)("queue:name")
    assert caught.value.exit_code == 2
    stubber.assert_no_pending_responses()


def test_own_job_is_found_beside_a_newer_job_of_the_same_name(
    scheduler: AWSBatchScheduler, stubber: Stubber
) -> None:
    summaries = [{"jobId": job_id, "jobName": "name"} for job_id in ("newer", "id")]
    stubber.add_response("list_jobs", {"jobSummaryList": summaries})
    jobs = [job(jobId="newer", tags={})["jobs"][0], *job()["jobs"]]
    stubber.add_response("describe_jobs", {"jobs": jobs}, {"jobs": ["newer", "id"]})
    stubber.add_response("describe_jobs", job(), {"jobs": ["id"]})
    stubber.add_response("terminate_job", {}, {"jobId": "id", "reason": ANY})
    scheduler.cancel("queue:name")
    stubber.assert_no_pending_responses()
