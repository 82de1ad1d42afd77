"""Submission of training jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_aws.client import AwsError, Clients, announced, aws_errors
from torchx_sched_aws.sagemaker.jobs import find
from torchx_sched_aws.sagemaker.options import ROLE_ARN
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob
from torchx_specs.errors import RequestError


class SubmissionError(RequestError, AwsError):
    """SageMaker rejected the request as invalid."""

    exit_code = 2

    def __init__(self, text: str, code: str) -> None:
        AwsError.__init__(self, text, code)
        self.problems = (text,)


def create(clients: Clients, job: AWSSageMakerJob) -> None:
    """Create a training job.

    Raises:
        SubmissionError: SageMaker rejected the request as invalid.
        AwsError: AWS refused the request or did not answer.
    """
    request = dict(job.job_def)
    role = str(request.get("RoleArn") or "")
    if not ROLE_ARN.fullmatch(role):
        with aws_errors(f"look up the IAM role '{role}'"):
            request["RoleArn"] = clients.client("iam").get_role(RoleName=role)["Role"]["Arn"]
    try:
        with announced(job.job_name), aws_errors(f"create the training job {job.job_name}"):
            clients.client("sagemaker").create_training_job(**request)
    except AwsError as e:
        if e.code == "ResourceInUse" and _was_created(clients, request):
            return  # the response was lost, and the SDK repeated the request
        if e.code in ("ParamValidation", "ValidationException", "ResourceInUse"):
            raise SubmissionError(str(e), e.code) from e
        raise


def _was_created(clients: Clients, request: Mapping[str, Any]) -> bool:
    """Return whether this request created the existing job of the same name.

    Names are random, so the same image and IAM role are sufficient evidence.
    """
    found = find(clients, str(request["TrainingJobName"]))
    image = request["AlgorithmSpecification"].get("TrainingImage")
    return found is not None and (
        found["AlgorithmSpecification"].get("TrainingImage") == image
        and found.get("RoleArn") == request["RoleArn"]
    )
