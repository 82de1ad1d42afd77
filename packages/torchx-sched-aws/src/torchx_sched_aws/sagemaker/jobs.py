"""Training jobs at SageMaker: creating, finding, describing, listing, ending."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_kit.names.limits import SAGEMAKER
from torchx_sched_aws.client import AwsError, Clients, aws_errors
from torchx_sched_aws.sagemaker.command import read_command
from torchx_sched_aws.sagemaker.options import ROLE_ARN
from torchx_sched_aws.sagemaker.request import ENV_TORCHX_ROLE_NAME, AWSSageMakerJob
from torchx_sched_aws.sagemaker.states import exit_code_of, job_state, reason_of, restarts_of
from torchx_specs.errors import RequestError
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.status import ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS, DescribeAppResponse, ListAppResponse

#: The role's name where the job does not say.
DEFAULT_ROLE_NAME = "trainer"
#: Jobs of one page.
PAGE = 100
#: How long a job may take to stop before it can be deleted, in seconds.
STOP_PATIENCE = 300.0
_PAUSES = (0.5, 5.0)
_NOT_FOUND = ("ResourceNotFound", "ResourceNotFoundException")
# what the service says instead of the errors that its model has
_NOT_FOUND_TEXT = "Requested resource not found"
_ENDED_TEXT = "is in status"


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


def find(clients: Clients, app_id: str) -> dict[str, Any] | None:
    """Returns what SageMaker says of a job, None if there is none of that name.

    Raises:
        AwsError: AWS refuses, or does not answer
    """
    if not SAGEMAKER.accepts(app_id):
        return None
    try:
        with aws_errors(f"describe the training job {app_id}"):
            found: dict[str, Any] = clients.client("sagemaker").describe_training_job(
                TrainingJobName=app_id
            )
    except AwsError as e:
        if _is_missing(e):
            return None
        raise
    return None if found["TrainingJobStatus"] == "Deleting" else found


def _is_missing(error: AwsError) -> bool:
    return error.code in _NOT_FOUND or _NOT_FOUND_TEXT in str(error)


def describe(app_id: str, job: Mapping[str, Any]) -> DescribeAppResponse:
    """Returns a job as an app of one role."""
    secondary = str(job.get("SecondaryStatus") or "")
    state = job_state(job["TrainingJobStatus"], secondary)
    role = role_of(job)
    restarts = restarts_of(job)
    reason = reason_of(job)
    code = exit_code_of(job)
    replicas = [
        ReplicaStatus(
            k,
            state,
            role.name,
            hostname=f"algo-{k + 1}",
            reason=reason,
            exit_code=code,
            restarts=restarts,
        )
        for k in range(role.num_replicas)
    ]
    return DescribeAppResponse(
        app_id,
        state,
        num_restarts=restarts,
        msg=reason or NONE,
        ui_url=_ui_url(str(job["TrainingJobArn"])),
        metadata=_metadata(job),
        roles_statuses=[RoleStatus(role.name, replicas)],
        roles=[role],
    )


def role_of(job: Mapping[str, Any]) -> Role:
    """Returns the role of a job, as far as the job says."""
    environment = dict(job.get("Environment") or {})
    algorithm = job.get("AlgorithmSpecification") or {}
    command = read_command(algorithm)
    name = environment.get(ENV_TORCHX_ROLE_NAME, DEFAULT_ROLE_NAME)
    return Role(
        name,
        str(algorithm.get("TrainingImage") or algorithm.get("AlgorithmName") or ""),
        entrypoint=command[0] if command else MISSING,
        args=command[1:],
        env=environment,
        num_replicas=_instances(job.get("ResourceConfig") or {}),
        max_retries=int((job.get("RetryStrategy") or {}).get("MaximumRetryAttempts") or 0),
    )


def _instances(resources: Mapping[str, Any]) -> int:
    groups = resources.get("InstanceGroups") or ()
    return sum(int(g["InstanceCount"]) for g in groups) or int(resources.get("InstanceCount") or 1)


def _metadata(job: Mapping[str, Any]) -> dict[str, str]:
    """Returns what else a job says: its way through the secondary statuses, where its output is."""
    found = {"secondary_status": str(job.get("SecondaryStatus") or "")}
    for i, item in enumerate(job.get("SecondaryStatusTransitions") or ()):
        said = " ".join(str(item.get("StatusMessage") or "").split())
        began = item["StartTime"].astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        found[f"transition/{i:02}"] = f"{began} {item['Status']}" + (f": {said}" if said else "")
    artifacts = (job.get("ModelArtifacts") or {}).get("S3ModelArtifacts")
    if artifacts:
        found["model_artifacts"] = str(artifacts)
    for key in ("TrainingTimeInSeconds", "BillableTimeInSeconds"):
        if job.get(key) is not None:
            found[key] = str(job[key])
    return found


def _ui_url(arn: str) -> str:
    partition, _, region = arn.split(":")[1:4]
    name = arn.rpartition("/")[2]
    domains = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}
    domain = domains.get(partition, f"{region}.console.aws.amazon.com")
    return f"https://{domain}/sagemaker/home?region={region}#jobs/{name}"


def list_jobs(clients: Clients, session_name: str) -> list[ListAppResponse]:
    """Returns the training jobs of the last two weeks, the newest first; one request for each
    hundred.

    Raises:
        AwsError: AWS refuses, or does not answer
    """
    after = datetime.now(timezone.utc) - timedelta(days=DAYS_IN_2_WEEKS)
    found = []
    with aws_errors("list training jobs"):
        paginator = clients.client("sagemaker").get_paginator("list_training_jobs")
        for page in paginator.paginate(
            CreationTimeAfter=after,
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"PageSize": PAGE},
        ):
            for item in page["TrainingJobSummaries"]:
                if item["TrainingJobStatus"] == "Deleting":
                    continue
                name = str(item["TrainingJobName"])
                state = job_state(item["TrainingJobStatus"], item.get("SecondaryStatus") or "")
                handle = f"aws_sagemaker://{session_name}/{name}"
                found.append(ListAppResponse(name, state, handle, name.rpartition("-")[0] or name))
    return found


def stop(clients: Clients, app_id: str) -> None:
    """Stops a job; does nothing if it has ended.

    Raises:
        AwsError: AWS refuses, or does not answer
    """
    try:
        with aws_errors(f"stop the training job {app_id}"):
            clients.client("sagemaker").stop_training_job(TrainingJobName=app_id)
    except AwsError as e:
        if e.code != "ValidationException" or _ENDED_TEXT not in str(e):
            if _is_missing(e):
                return
            raise


def delete(clients: Clients, app_id: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Stops a job, waits for that, and deletes it.

    Raises:
        AwsError: AWS refuses, does not answer, or the job does not stop
    """
    deadline = time.monotonic() + STOP_PATIENCE
    pause, longest = _PAUSES
    stopped = False
    while True:
        job = find(clients, app_id)
        if job is None:
            return
        status = job["TrainingJobStatus"]
        if status in ("Completed", "Failed", "Stopped"):
            break
        if not stopped:
            stop(clients, app_id)
            stopped = True
        if time.monotonic() > deadline:
            raise AwsError(
                f"cannot delete the training job {app_id}: it is still {status} after"
                f" {STOP_PATIENCE:.0f} seconds; try again later"
            )
        sleep(pause)
        pause = min(pause * 1.5, longest)
    client = clients.client("sagemaker")
    if not hasattr(client, "delete_training_job"):
        import logging

        logging.getLogger(__name__).warning(
            "training job %s has ended and stays in SageMaker's list: this boto3 cannot delete"
            " training jobs, a newer one can",
            app_id,
        )
        return
    try:
        with aws_errors(f"delete the training job {app_id}"):
            client.delete_training_job(TrainingJobName=app_id)
    except AwsError as e:
        if not _is_missing(e):
            raise


def ended_at(job: Mapping[str, Any]) -> float | None:
    """Returns when a job ended, in seconds since 1970, None if it has not."""
    if not is_terminal(job_state(job["TrainingJobStatus"], str(job.get("SecondaryStatus") or ""))):
        return None
    when = job.get("TrainingEndTime") or job.get("LastModifiedTime")
    return when.timestamp() if isinstance(when, datetime) else 0.0
