"""Training jobs; botocore's Stubber checks requests and responses against its models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from torchx_kit.retry import Backoff
from torchx_sched_aws.client import AwsError
from torchx_sched_aws.command import training_command
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob
from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import RequestError
from torchx_specs.schedulers import Stream

ROLE = "arn:aws:iam::123456789012:role/Trainer"
NAME = "app-abc"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def stubbed(service: str) -> Stubber:
    client = boto3.client(
        service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    return Stubber(client)


@pytest.fixture
def sagemaker() -> Iterator[Stubber]:
    with stubbed("sagemaker") as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def scheduler(sagemaker: Stubber) -> AWSSageMakerScheduler:
    return AWSSageMakerScheduler("test", client=sagemaker.client)


def training_job(**fields: Any) -> dict[str, Any]:
    """Return the description of a training job that TorchX submitted."""
    return {
        "TrainingJobName": NAME,
        "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{NAME}",
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/out/model.tar.gz"},
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Training",
        "AlgorithmSpecification": {"TrainingImage": "i:1", "TrainingInputMode": "File"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 2,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "CreationTime": NOW,
        "Environment": {"TORCHX_ROLE_NAME": "main"},
        **fields,
    }


def transitions(*statuses: str) -> list[dict[str, Any]]:
    return [
        {"Status": status, "StartTime": NOW + timedelta(minutes=i), "StatusMessage": f"m {status}"}
        for i, status in enumerate(statuses)
    ]


def test_describe_returns_role_replicas_and_metadata(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    fields, _ = training_command(["echo", "x" * 300], {}, "<k>")
    job = training_job(
        Environment={"TORCHX_ROLE_NAME": "worker"},
        SecondaryStatusTransitions=transitions("Starting", "Training"),
        AlgorithmSpecification={
            "TrainingImage": "i:1",
            "TrainingInputMode": "File",
            **fields,
        },
        RetryStrategy={"MaximumRetryAttempts": 3},
        BillableTimeInSeconds=7,
    )
    sagemaker.add_response("describe_training_job", job, {"TrainingJobName": NAME})
    found = scheduler.describe(NAME)
    assert found is not None
    assert (found.state, found.msg, found.num_restarts) == (
        AppState.RUNNING,
        "Training: m Training",
        0,
    )
    (role,) = found.roles
    assert (role.name, role.image, role.num_replicas, role.max_retries) == ("worker", "i:1", 2, 3)
    assert (role.entrypoint, role.args[0]) == ("sh", "-c")
    assert "x" * 300 in role.args[1]
    (status,) = found.roles_statuses
    assert [(r.id, r.hostname) for r in status.replicas] == [(0, "algo-1"), (1, "algo-2")]
    assert found.metadata == {
        "secondary_status": "Training",
        "transition/00": "2026-11-21T12:00:00Z Starting: m Starting",
        "transition/01": "2026-11-21T12:01:00Z Training: m Training",
        "model_artifacts": "s3://bucket/out/model.tar.gz",
        "BillableTimeInSeconds": "7",
    }


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ValidationException", "Requested resource not found."),
        ("ResourceNotFound", "no such job"),
    ],
)
def test_describe_of_a_missing_job_is_none(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, code: str, message: str
) -> None:
    sagemaker.add_client_error("describe_training_job", code, message)
    assert scheduler.describe(NAME) is None


def test_other_errors_are_raised(sagemaker: Stubber, scheduler: AWSSageMakerScheduler) -> None:
    sagemaker.add_client_error("describe_training_job", "ValidationException", "something else")
    with pytest.raises(AwsError, match="cannot describe the training job app-abc: something else"):
        scheduler.describe(NAME)


@pytest.mark.parametrize(
    ("partition", "prefix"),
    [
        ("aws", "https://us-east-1.console.aws.amazon.com/"),
        ("aws-cn", "https://console.amazonaws.cn/"),
        ("aws-us-gov", "https://console.amazonaws-us-gov.com/"),
    ],
)
def test_ui_url_depends_on_the_partition(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, partition: str, prefix: str
) -> None:
    arn = f"arn:{partition}:sagemaker:us-east-1:123456789012:training-job/{NAME}"
    sagemaker.add_response("describe_training_job", training_job(TrainingJobArn=arn))
    found = scheduler.describe(NAME)
    assert found is not None
    assert found.ui_url is not None
    assert found.ui_url.startswith(prefix)


def request(**fields: Any) -> AWSSageMakerJob:
    job = AWSSageMakerScheduler("test").submit_dryrun(
        AppDef("app", [Role("r", "i:1", entrypoint="echo")]),
        {"role": ROLE, "instance_type": "ml.m5.large", "output_path": "s3://b/o", **fields},
    )
    found: AWSSageMakerJob = job.request
    return found


def test_role_name_is_replaced_by_its_arn(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    job = request(role="Trainer")
    assert job.job_def["RoleArn"] == "Trainer"
    with stubbed("iam") as iam:
        known = {
            "Path": "/",
            "RoleName": "Trainer",
            "RoleId": "A" * 16,
            "Arn": ROLE,
            "CreateDate": NOW,
        }
        iam.add_response("get_role", {"Role": known}, {"RoleName": "Trainer"})
        arn = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{job.job_name}"
        expected = {**job.job_def, "RoleArn": ROLE}
        sagemaker.add_response("create_training_job", {"TrainingJobArn": arn}, expected)
        scheduler._clients._given["iam"] = iam.client
        scheduler.submit_request(job)
        iam.assert_no_pending_responses()


def test_invalid_request_is_a_request_error(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    sagemaker.add_client_error("create_training_job", "ValidationException", "no such subnet")
    with pytest.raises(RequestError, match="no such subnet") as caught:
        scheduler.submit_request(request())
    assert caught.value.exit_code == 2
    sagemaker.add_client_error("create_training_job", "ResourceLimitExceeded", "no more")
    with pytest.raises(AwsError, match="no more") as limited:
        scheduler.submit_request(request())
    assert limited.value.exit_code == 3


def test_existing_job_of_another_request_is_an_error(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    sagemaker.add_client_error("create_training_job", "ResourceInUse", "already exists")
    sagemaker.add_response("describe_training_job", training_job(RoleArn=ROLE + "2"))
    with pytest.raises(RequestError, match="already exists"):
        scheduler.submit_request(request())


def test_cancel_of_a_job_that_just_ended_does_nothing(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    sagemaker.add_response("describe_training_job", training_job())
    text = "The request was rejected because the training job is in status Completed."
    sagemaker.add_client_error("stop_training_job", "ValidationException", text)
    scheduler.cancel(NAME)


def set_time(patch: pytest.MonkeyPatch, **functions: Any) -> None:
    """Replace the functions of time between two polls of a job that stops."""
    patch.setattr("torchx_sched_aws.sagemaker.scheduler.Backoff", partial(Backoff, **functions))


def test_delete_stops_the_job_first(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = ["InProgress", "Stopping", "Stopped"]
    for status in statuses:
        sagemaker.add_response("describe_training_job", training_job(TrainingJobStatus=status))
        if status == "InProgress":
            sagemaker.add_response("stop_training_job", {}, {"TrainingJobName": NAME})
    sagemaker.add_response("delete_training_job", {}, {"TrainingJobName": NAME})
    slept: list[float] = []
    set_time(monkeypatch, sleep=slept.append)
    scheduler.delete(NAME)
    assert slept == [0.5, 1.0]


def test_delete_of_a_job_that_does_not_stop_is_an_error(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sagemaker.add_response("describe_training_job", training_job(TrainingJobStatus="Stopping"))
    sagemaker.add_response("stop_training_job", {})
    sagemaker.add_response("describe_training_job", training_job(TrainingJobStatus="Stopping"))
    set_time(monkeypatch, sleep=lambda seconds: None, clock=iter([0.0, 300.0]).__next__)
    with pytest.raises(AwsError, match="still Stopping after 300 seconds"):
        scheduler.delete(NAME)


def test_delete_with_an_older_boto3_logs_a_warning(
    sagemaker: Stubber, caplog: pytest.LogCaptureFixture
) -> None:
    class Older:
        describe_training_job = sagemaker.client.describe_training_job

    job = training_job(TrainingJobStatus="Completed", SecondaryStatus="Completed")
    sagemaker.add_response("describe_training_job", job)
    AWSSageMakerScheduler("test", client=Older()).delete(NAME)
    assert "upgrade boto3" in caplog.text


def test_list_reads_every_page(sagemaker: Stubber, scheduler: AWSSageMakerScheduler) -> None:
    def summary(name: str, status: str, secondary: str) -> dict[str, Any]:
        return {
            "TrainingJobName": name,
            "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}",
            "CreationTime": NOW,
            "TrainingJobStatus": status,
            "SecondaryStatus": secondary,
        }

    parameters = {
        "CreationTimeAfter": ANY,
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
        "MaxResults": 100,
    }
    first = [summary("a-b-x1", "InProgress", "Starting"), summary("gone", "Deleting", "Stopped")]
    sagemaker.add_response(
        "list_training_jobs", {"TrainingJobSummaries": first, "NextToken": "t"}, parameters
    )
    second = {"TrainingJobSummaries": [summary("c", "Stopped", "Stopped")]}
    sagemaker.add_response("list_training_jobs", second, {**parameters, "NextToken": "t"})
    tags = [{"Key": "torchx.pytorch.org/version", "Value": "1"}]
    results = [
        {"TrainingJob": {"TrainingJobArn": summary(name, "", "")["TrainingJobArn"], "Tags": tags}}
        for name in ("a-b-x1", "c")
    ]
    sagemaker.add_response("search", {"Results": results})
    found = scheduler.list()
    assert [(a.app_id, a.state, a.app_handle, a.name) for a in found] == [
        ("a-b-x1", AppState.PENDING, "aws_sagemaker://test/a-b-x1", "a-b"),
        ("c", AppState.CANCELLED, "aws_sagemaker://test/c", "c"),
    ]


def test_job_of_another_tool_is_not_deleted(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    job = training_job(Environment={})
    sagemaker.add_response("describe_training_job", job)
    sagemaker.add_response("list_tags", {"Tags": []}, {"ResourceArn": job["TrainingJobArn"]})
    with pytest.raises(RequestError, match="TorchX did not submit this job"):
        scheduler.delete(NAME)


def test_job_of_upstreams_torchx_is_deleted(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    job = training_job(Environment={}, TrainingJobStatus="Completed")
    sagemaker.add_response("describe_training_job", job)
    tags = [{"Key": "torchx.pytorch.org/version", "Value": "0.7.0"}]
    sagemaker.add_response("list_tags", {"Tags": tags}, {"ResourceArn": job["TrainingJobArn"]})
    sagemaker.add_response("delete_training_job", {}, {"TrainingJobName": NAME})
    scheduler.delete(NAME)


def test_logs_of_stderr_alone_are_an_error(scheduler: AWSSageMakerScheduler) -> None:
    with pytest.raises(RequestError, match="request the combined output"):
        scheduler.log_iter(NAME, "r", streams=Stream.STDERR)
