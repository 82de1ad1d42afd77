"""References to secrets: AWS Batch has them in jobs and descriptions, SageMaker refuses them."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
import yaml
from botocore.stub import ANY, Stubber

from torchx_sched_aws.batch.describe import read_roles
from torchx_sched_aws.batch.request import container_properties
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_sched_aws.client import AccessDeniedError, AwsError
from torchx_sched_aws.sagemaker.scheduler import create_scheduler as create_sagemaker_scheduler
from torchx_specs import AppDef, RequestError, Resource, Role, secret
from torchx_specs.overlays import set_overlay

EXECUTION = "arn:aws:iam::123456789012:role/execution"
ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret"
ENV = {
    "HF_TOKEN": secret("hf"),
    "TORCHX_TOKEN": secret("hf"),
    "PASSWORD": secret("team.db-1", "pass.word"),
    "A": "b",
}


def role(**fields: Any) -> Role:
    resource = Resource(cpu=1, gpu=0, memMB=64)
    settings = {"entrypoint": "sh", "resource": resource, "env": ENV, **fields}
    return Role("main", "image", **settings)


@pytest.fixture
def batch(credentials: None) -> Stubber:
    stubber = Stubber(boto3.client("batch"))
    stubber.activate()
    return stubber


@pytest.fixture
def store(credentials: None) -> Stubber:
    stubber = Stubber(boto3.client("secretsmanager"))
    stubber.activate()
    return stubber


@pytest.fixture
def scheduler(batch: Stubber, store: Stubber) -> AWSBatchScheduler:
    scheduler = AWSBatchScheduler("test", client=batch.client)
    scheduler._clients._given["secretsmanager"] = store.client
    return scheduler


def dry_run(scheduler: AWSBatchScheduler, *roles: Role, **cfg: Any) -> Any:
    cfg = {"queue": "queue", "execution_role_arn": EXECUTION, **cfg}
    return scheduler.submit_dryrun(AppDef("app", list(roles) or [role()]), cfg)


@pytest.mark.parametrize("replicas", [1, 2])
def test_references_are_secrets_of_the_definition(
    scheduler: AWSBatchScheduler, validate: Any, replicas: int
) -> None:
    info = dry_run(scheduler, role(num_replicas=replicas))
    (container,) = container_properties(info.request.job_def)
    assert container["secrets"] == [
        {"name": "HF_TOKEN", "valueFrom": "${secret:hf}"},
        {"name": "TORCHX_TOKEN", "valueFrom": "${secret:hf}"},
        {"name": "PASSWORD", "valueFrom": "${secret:team.db-1/pass.word}"},
    ]
    assert {"name": "A", "value": "b"} in container["environment"]
    assert "${secret" not in repr(container["environment"]) + repr(info.request.submission)
    shown = container_properties(yaml.safe_load(str(info))["job_def"])
    assert shown[0]["secrets"] == container["secrets"]
    validate("batch", "RegisterJobDefinition", info.request.job_def)


def test_secrets_need_an_execution_role(scheduler: AWSBatchScheduler) -> None:
    one = role(env={"HF_TOKEN": secret("hf")})
    with pytest.raises(RequestError) as e:
        dry_run(scheduler, one, execution_role_arn=None)
    assert str(e.value) == (
        "role 'main': env['HF_TOKEN'] is ${secret:hf}; to read it, AWS Batch needs the option"
        " execution_role_arn, a role with the permission secretsmanager:GetSecretValue"
    )
    set_overlay(one, "aws_batch", "Container", {"executionRoleArn": EXECUTION})
    dry_run(scheduler, one, execution_role_arn=None)


def expect_queue(batch: Stubber) -> None:
    fields = {"jobQueueName": "queue", "jobQueueArn": "arn", "state": "ENABLED", "priority": 1}
    queue = {**fields, "computeEnvironmentOrder": []}
    batch.add_response("describe_job_queues", {"jobQueues": [queue]})


def test_the_submission_refers_to_secrets_by_arn(
    scheduler: AWSBatchScheduler, batch: Stubber, store: Stubber
) -> None:
    info = dry_run(scheduler)
    expect_queue(batch)
    for name in ("hf", "team.db-1"):
        found = {"ARN": f"{ARN}:{name}-AbC1x9", "Name": name}
        store.add_response("describe_secret", found, {"SecretId": name})
    batch.add_response("describe_job_definitions", {"jobDefinitions": []})
    (container,) = container_properties(info.request.job_def)
    secrets = [
        {"name": "HF_TOKEN", "valueFrom": f"{ARN}:hf-AbC1x9"},
        {"name": "TORCHX_TOKEN", "valueFrom": f"{ARN}:hf-AbC1x9"},
        {"name": "PASSWORD", "valueFrom": f"{ARN}:team.db-1-AbC1x9:pass.word::"},
    ]
    registered = {
        **info.request.job_def,
        "containerProperties": {**container, "secrets": secrets},
        "tags": ANY,
    }
    answer = {"jobDefinitionName": "torchx-app", "jobDefinitionArn": "new", "revision": 5}
    batch.add_response("register_job_definition", answer, registered)
    batch.add_response("submit_job", {"jobName": info.request.name, "jobId": "id"})
    scheduler.schedule(info)
    batch.assert_no_pending_responses()
    store.assert_no_pending_responses()
    assert container["secrets"][0]["valueFrom"] == "${secret:hf}"
    (described,) = read_roles({"container": registered["containerProperties"]})
    assert {name: described.env[name] for name in ENV} == ENV


def test_all_missing_secrets_are_one_error_before_anything_is_registered(
    scheduler: AWSBatchScheduler, batch: Stubber, store: Stubber
) -> None:
    info = dry_run(scheduler, role(env={"A": secret("a"), "B": secret("b")}))
    expect_queue(batch)
    store.add_client_error("describe_secret", "ResourceNotFoundException")
    store.add_response("describe_secret", {"ARN": f"{ARN}:b-AbC1x9", "DeletedDate": 1})
    with pytest.raises(RequestError) as e:
        scheduler.schedule(info)
    assert e.value.problems == tuple(
        f"env['{variable}']: the secret '{name}' does not exist in Secrets Manager in us-east-1;"
        f" create it with: aws secretsmanager create-secret --name {name} --secret-string"
        " file://FILE"
        for variable, name in (("A", "a"), ("B", "b"))
    )


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("AccessDeniedException", AccessDeniedError, "set the option secrets to VARIABLE:ARN"),
        ("InternalServiceError", AwsError, "cannot describe the secret hf"),
    ],
)
def test_other_errors_name_the_secret(
    scheduler: AWSBatchScheduler,
    batch: Stubber,
    store: Stubber,
    code: str,
    kind: type[AwsError],
    message: str,
) -> None:
    info = dry_run(scheduler)
    expect_queue(batch)
    store.add_client_error("describe_secret", code)
    with pytest.raises(kind, match=message):
        scheduler.schedule(info)


def test_variables_of_other_stores_are_left_out_of_the_description() -> None:
    secrets = [
        {"name": "A", "valueFrom": "arn:aws:ssm:us-east-1:123456789012:parameter/p"},
        {"name": "B", "valueFrom": "parameter"},
        {"name": "C", "valueFrom": f"{ARN}:prod/Other-AbC1x9"},
    ]
    (described,) = read_roles({"container": {"secrets": secrets}})
    assert described.env == {}


def test_sagemaker_refuses_references() -> None:
    scheduler = create_sagemaker_scheduler("test")
    with pytest.raises(RequestError, match="aws_sagemaker does not resolve references to secrets"):
        scheduler.submit_dryrun(AppDef("app", [role()]), {"role": EXECUTION})
