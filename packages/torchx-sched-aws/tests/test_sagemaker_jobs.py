"""What aws_sagemaker makes of SageMaker's answers; botocore's Stubber holds both to AWS's model."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from torchx_sched_aws.client import AwsError, Clients, NoCredentialsError, NoRegionError
from torchx_sched_aws.sagemaker import jobs as sagemaker_jobs
from torchx_sched_aws.sagemaker.command import make_command
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob
from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler
from torchx_sched_aws.sagemaker.submit import create
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


def answer(**fields: Any) -> dict[str, Any]:
    """Returns what SageMaker says of a job."""
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
        **fields,
    }


def transitions(*statuses: str) -> list[dict[str, Any]]:
    return [
        {"Status": status, "StartTime": NOW + timedelta(minutes=i), "StatusMessage": f"m {status}"}
        for i, status in enumerate(statuses)
    ]


# -- describing


def test_describing(sagemaker: Stubber, scheduler: AWSSageMakerScheduler) -> None:
    command = make_command(["echo", "x" * 300], {}, 100)
    job = answer(
        Environment={"TORCHX_ROLE_NAME": "worker"},
        SecondaryStatusTransitions=transitions("Starting", "Training"),
        AlgorithmSpecification={
            "TrainingImage": "i:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": command.entrypoint,
            "ContainerArguments": command.arguments,
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
def test_a_job_that_is_not_there(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, code: str, message: str
) -> None:
    sagemaker.add_client_error("describe_training_job", code, message)
    assert scheduler.describe(NAME) is None


def test_other_errors_are_told(sagemaker: Stubber, scheduler: AWSSageMakerScheduler) -> None:
    sagemaker.add_client_error("describe_training_job", "ValidationException", "something else")
    with pytest.raises(AwsError, match="cannot describe the training job app-abc: something else"):
        scheduler.describe(NAME)


@pytest.mark.parametrize("app_id", ["", "a b", "../x", "x" * 64, "-a", "a_b", "a\nb"])
def test_names_that_no_job_has_are_not_asked_for(
    scheduler: AWSSageMakerScheduler, app_id: str
) -> None:
    assert scheduler.describe(app_id) is None


@pytest.mark.parametrize(
    ("partition", "begin"),
    [
        ("aws", "https://us-east-1.console.aws.amazon.com/"),
        ("aws-cn", "https://console.amazonaws.cn/"),
        ("aws-us-gov", "https://console.amazonaws-us-gov.com/"),
    ],
)
def test_where_to_look_at_it(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, partition: str, begin: str
) -> None:
    arn = f"arn:{partition}:sagemaker:us-east-1:123456789012:training-job/{NAME}"
    sagemaker.add_response("describe_training_job", answer(TrainingJobArn=arn))
    found = scheduler.describe(NAME)
    assert found is not None
    assert found.ui_url is not None
    assert found.ui_url.startswith(begin)


# -- creating


def request(**fields: Any) -> AWSSageMakerJob:
    job = AWSSageMakerScheduler("test").submit_dryrun(
        AppDef("app", [Role("r", "i:1", entrypoint="echo")]),
        {"role": ROLE, "instance_type": "ml.m5.large", "output_path": "s3://b/o", **fields},
    )
    found: AWSSageMakerJob = job.request
    return found


def test_the_name_of_a_role_is_looked_up(sagemaker: Stubber) -> None:
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
        clients = Clients({"sagemaker": sagemaker.client, "iam": iam.client})
        create(clients, job)
        iam.assert_no_pending_responses()


def test_a_request_that_is_wrong_is_the_users_fault(sagemaker: Stubber) -> None:
    clients = Clients({"sagemaker": sagemaker.client})
    sagemaker.add_client_error("create_training_job", "ValidationException", "no such subnet")
    with pytest.raises(RequestError, match="no such subnet") as caught:
        create(clients, request())
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, AwsError)
    sagemaker.add_client_error("create_training_job", "ResourceLimitExceeded", "no more")
    with pytest.raises(AwsError, match="no more") as limited:
        create(clients, request())
    assert limited.value.exit_code == 3


def test_the_name_of_somebody_elses_job_is_taken(sagemaker: Stubber) -> None:
    clients = Clients({"sagemaker": sagemaker.client})
    sagemaker.add_client_error("create_training_job", "ResourceInUse", "already exists")
    sagemaker.add_response("describe_training_job", answer(RoleArn=ROLE + "2"))
    with pytest.raises(RequestError, match="already exists"):
        create(clients, request())


# -- ending


def test_stopping_what_has_ended_meanwhile(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    sagemaker.add_response("describe_training_job", answer())
    text = "The request was rejected because the training job is in status Completed."
    sagemaker.add_client_error("stop_training_job", "ValidationException", text)
    scheduler.cancel(NAME)


def test_deleting_stops_first(sagemaker: Stubber) -> None:
    statuses = ["InProgress", "Stopping", "Stopped"]
    for status in statuses:
        sagemaker.add_response("describe_training_job", answer(TrainingJobStatus=status))
        if status == "InProgress":
            sagemaker.add_response("stop_training_job", {}, {"TrainingJobName": NAME})
    sagemaker.add_response("delete_training_job", {}, {"TrainingJobName": NAME})
    slept: list[float] = []
    sagemaker_jobs.delete(Clients({"sagemaker": sagemaker.client}), NAME, slept.append)
    assert slept == [0.5, 1.0]


def test_deleting_what_does_not_stop(sagemaker: Stubber, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker_jobs, "STOP_PATIENCE", -1.0)
    sagemaker.add_response("describe_training_job", answer(TrainingJobStatus="Stopping"))
    sagemaker.add_response("stop_training_job", {})
    with pytest.raises(AwsError, match="still Stopping"):
        sagemaker_jobs.delete(Clients({"sagemaker": sagemaker.client}), NAME, lambda s: None)


def test_an_older_sdk_that_cannot_delete(
    sagemaker: Stubber, caplog: pytest.LogCaptureFixture
) -> None:
    class Older:
        describe_training_job = sagemaker.client.describe_training_job

    job = answer(TrainingJobStatus="Completed", SecondaryStatus="Completed")
    sagemaker.add_response("describe_training_job", job)
    sagemaker_jobs.delete(Clients({"sagemaker": Older()}), NAME)
    assert "a newer one can" in caplog.text


# -- listing, logs


def test_listing_goes_through_the_pages(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler
) -> None:
    def summary(name: str, status: str, secondary: str) -> dict[str, Any]:
        return {
            "TrainingJobName": name,
            "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}",
            "CreationTime": NOW,
            "TrainingJobStatus": status,
            "SecondaryStatus": secondary,
        }

    words = {
        "CreationTimeAfter": ANY,
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
        "MaxResults": 100,
    }
    first = [summary("a-b-x1", "InProgress", "Starting"), summary("gone", "Deleting", "Stopped")]
    sagemaker.add_response(
        "list_training_jobs", {"TrainingJobSummaries": first, "NextToken": "t"}, words
    )
    second = {"TrainingJobSummaries": [summary("c", "Stopped", "Stopped")]}
    sagemaker.add_response("list_training_jobs", second, {**words, "NextToken": "t"})
    found = scheduler.list()
    assert [(a.app_id, a.state, a.app_handle, a.name) for a in found] == [
        ("a-b-x1", AppState.PENDING, "aws_sagemaker://test/a-b-x1", "a-b"),
        ("c", AppState.CANCELLED, "aws_sagemaker://test/c", "c"),
    ]


def test_one_output_by_itself_is_refused(scheduler: AWSSageMakerScheduler) -> None:
    with pytest.raises(RequestError, match="ask for combined"):
        scheduler.log_iter(NAME, "r", streams=Stream.STDERR)


@pytest.mark.parametrize(("role", "k"), [("workr", 0), ("worker", 2), ("worker", -1)])
def test_logs_of_no_such_replica(
    sagemaker: Stubber, scheduler: AWSSageMakerScheduler, role: str, k: int
) -> None:
    job = answer(Environment={"TORCHX_ROLE_NAME": "worker"})
    sagemaker.add_response("describe_training_job", job)
    with pytest.raises(RequestError, match="worker"):
        list(scheduler.log_iter(NAME, role, k))


# -- nobody to ask


def test_without_credentials_or_region(monkeypatch: pytest.MonkeyPatch, credentials: None) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(NoRegionError, match="AWS_DEFAULT_REGION"):
        AWSSageMakerScheduler("test").list()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(NoCredentialsError, match="aws configure"):
        AWSSageMakerScheduler("test").list()
