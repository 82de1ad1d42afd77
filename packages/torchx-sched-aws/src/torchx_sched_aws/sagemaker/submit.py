"""Submission of training jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_aws.client import AwsError, Clients, aws_errors
from torchx_sched_aws.sagemaker.jobs import find
from torchx_sched_aws.sagemaker.options import ROLE_ARN
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob
from torchx_specs.errors import RequestError


class SubmissionError(RequestError, AwsError):
    """SageMaker does not take the request."""

    exit_code = 2

    def __init__(self, text: str, code: str) -> None:
        AwsError.__init__(self, text, code)
        self.problems = (text,)


def create(clients: Clients, job: AWSSageMakerJob) -> None:
    """Creates a job.

    Raises:
        SubmissionError: SageMaker finds something wrong with the request
        AwsError: AWS refuses, or does not answer
    """
    request = dict(job.job_def)
    role = str(request.get("RoleArn") or "")
    if not ROLE_ARN.fullmatch(role):
        with aws_errors(f"look up the IAM role '{role}'"):
            request["RoleArn"] = clients.client("iam").get_role(RoleName=role)["Role"]["Arn"]
    try:
        with aws_errors(f"create the training job {job.job_name}"):
            clients.client("sagemaker").create_training_job(**request)
    except AwsError as e:
        if e.code == "ResourceInUse" and _was_created(clients, request):
            return  # an answer was lost, and the SDK has asked again
        if e.code in ("ParamValidation", "ValidationException", "ResourceInUse"):
            raise SubmissionError(str(e), e.code) from e
        raise


def _was_created(clients: Clients, request: Mapping[str, Any]) -> bool:
    """Returns True if the job of that name is the one of this request: names are random."""
    found = find(clients, str(request["TrainingJobName"]))
    image = request["AlgorithmSpecification"].get("TrainingImage")
    return found is not None and (
        found["AlgorithmSpecification"].get("TrainingImage") == image
        and found.get("RoleArn") == request["RoleArn"]
    )
