"""Tests of the AWS double: it refuses requests that AWS would refuse.

The tests of the schedulers would not notice a double that accepts too much. They do notice if
its jobs do not run, end, restart, log and appear in lists as those of AWS do.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from aws_double import AwsDouble
from botocore.config import Config
from botocore.exceptions import ClientError

Client = Callable[[str], Any]
# All tests use one session, because a session caches the service models.
SESSION = boto3.session.Session()


@pytest.fixture
def client(double: AwsDouble) -> Client:
    """Return a function that makes clients without retries."""
    return lambda service: SESSION.client(
        service,
        endpoint_url=double.url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}),
    )


def container(script: str, **fields: Any) -> dict[str, Any]:
    wanted = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    command = ["sh", "-c", script]
    return {"image": "any", "command": command, "resourceRequirements": wanted, **fields}


def nodes(*scripts: str, main: int = 0) -> dict[str, Any]:
    ranges = [
        {"targetNodes": f"{i}:{i}", "container": container(script)}
        for i, script in enumerate(scripts)
    ]
    return {"numNodes": len(scripts), "mainNode": main, "nodeRangeProperties": ranges}


def refusal(call: Callable[..., Any], **params: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def post(double: AwsDouble, path: str, body: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", double.port)
    connection.request("POST", path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_request_that_does_not_fit_the_model_is_a_violation() -> None:
    double = AwsDouble()
    signed = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/sagemaker/aws4_request, x=y"
    headers = {
        "X-Amz-Target": "SageMaker.DescribeTrainingJob",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": signed,
    }
    body = json.dumps({"TrainingJobName": "a", "NoSuchMember": 1})
    assert post(double, "/", body, headers) == 400
    [violation] = double.violations
    assert violation.startswith("request sagemaker.DescribeTrainingJob: ")
    assert 'Unknown parameter in input: "NoSuchMember"' in violation
    double.close()
    with pytest.raises(AssertionError):
        double.check()


def test_value_that_breaks_a_constraint_is_an_error(client: Client) -> None:
    sagemaker = client("sagemaker")
    code, message = refusal(sagemaker.describe_training_job, TrainingJobName="a b")
    assert code == "ValidationException"
    assert "pattern" in message
    code, message = refusal(sagemaker.list_training_jobs, MaxResults=101)
    assert (code, "allowed: 1 to 100" in message) == ("ValidationException", True)
    code, _ = refusal(sagemaker.list_training_jobs, StatusEquals="Done")
    assert code == "ValidationException"


def test_unsigned_request_is_an_error(double: AwsDouble) -> None:
    assert post(double, "/v1/describejobqueues", "{}", {}) == 403


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"numNodes": 4}, "3 of 4 nodes"),
        ({"mainNode": 3}, "main node 3 of 3"),
        ({"nodeRangeProperties": []}, "node groups"),
    ],
)
def test_invalid_node_ranges_are_an_error(
    client: Client, change: dict[str, Any], expected: str
) -> None:
    properties = {**nodes("true", "true", "true"), **change}
    words = {"jobDefinitionName": "a", "type": "multinode", "nodeProperties": properties}
    code, message = refusal(client("batch").register_job_definition, **words)
    assert (code, expected in message) == ("ClientException", True), message


def test_too_large_definition_is_an_error(client: Client) -> None:
    properties = container("x" * 25_000)
    words = {"jobDefinitionName": "a", "type": "container", "containerProperties": properties}
    code, message = refusal(client("batch").register_job_definition, **words)
    assert (code, "24 KiB" in message) == ("ClientException", True)


def test_reserved_variables_are_an_error(client: Client) -> None:
    properties = container("true", environment=[{"name": "AWS_BATCH_X", "value": "1"}])
    words = {"jobDefinitionName": "a", "type": "container", "containerProperties": properties}
    assert "AWS_BATCH_X" in refusal(client("batch").register_job_definition, **words)[1]


def test_training_job_that_breaks_a_documented_rule_is_an_error(client: Client) -> None:
    words = {
        "TrainingJobName": "two",
        "AlgorithmSpecification": {"TrainingImage": "any", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/trainer",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 2,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "EnableManagedSpotTraining": True,
    }
    code, message = refusal(client("sagemaker").create_training_job, **words)
    assert (code, "MaxWaitTimeInSeconds" in message) == ("ValidationException", True)
