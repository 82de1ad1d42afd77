"""Find, list, stop and delete training jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.names.limits import SAGEMAKER
from torchx_kit.retry import Backoff
from torchx_sched_aws.client import AccessDeniedError, AwsError, Clients, aws_errors
from torchx_sched_aws.sagemaker.request import ENV_TORCHX_ROLE_NAME
from torchx_sched_aws.sagemaker.states import job_state
from torchx_sched_aws.tags import TAG_TORCHX_VER
from torchx_specs.errors import RequestError
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS, ListAppResponse

#: Maximum number of jobs in a response.
PAGE_SIZE = 100
#: Number of jobs whose tags are requested concurrently.
PARALLEL_TAGS = 8
#: How long :func:`delete` waits until a job has stopped, in seconds.
STOP_TIMEOUT = 300.0
STOP_PAUSES = (0.5, 5.0)
_NOT_FOUND = ("ResourceNotFound", "ResourceNotFoundException")
# SageMaker reports a missing job and an ended job as ValidationException, with these texts.
_NOT_FOUND_TEXT = "Requested resource not found"
_ENDED_TEXT = "is in status"

logger = logging.getLogger(__name__)


def find(clients: Clients, app_id: str) -> dict[str, Any] | None:
    """Return a training job as ``DescribeTrainingJob`` describes it.

    Returns None if the job does not exist or is being deleted.

    Raises:
        AwsError: AWS refused the request or did not answer.
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


def list_jobs(clients: Clients, session_name: str) -> list[ListAppResponse]:
    """Return the training jobs that TorchX submitted in the last two weeks, the newest first.

    ``ListTrainingJobs`` returns neither tags nor start times. ``Search`` returns both, 100 jobs a
    request, but its index may lack the newest jobs. Each of those takes two more requests.

    Raises:
        AwsError: AWS refused the request or did not answer.
    """
    after = datetime.now(timezone.utc) - timedelta(days=DAYS_IN_2_WEEKS)
    found = []
    arns = []
    with aws_errors("list training jobs"):
        paginator = clients.client("sagemaker").get_paginator("list_training_jobs")
        for page in paginator.paginate(
            CreationTimeAfter=after,
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"PageSize": PAGE_SIZE},
        ):
            for item in page["TrainingJobSummaries"]:
                if item["TrainingJobStatus"] == "Deleting":
                    continue
                name = str(item["TrainingJobName"])
                state = job_state(item["TrainingJobStatus"], item.get("SecondaryStatus") or "")
                handle = f"aws_sagemaker://{session_name}/{name}"
                app = ListAppResponse(name, state, handle, name.rpartition("-")[0] or name)
                app.submitted, app.ended = item["CreationTime"], item.get("TrainingEndTime")
                app.exit_code = 0 if state == AppState.SUCCEEDED else None
                found.append(app)
                arns.append(str(item["TrainingJobArn"]))
    jobs = _search(clients, after) if found else {}
    unknown = [arn for arn in arns if arn not in jobs]
    with ThreadPoolExecutor(PARALLEL_TAGS) as pool:
        answers = pool.map(lambda arn: _find_own(clients, arn), unknown)
        jobs.update(zip(unknown, answers, strict=True))
    own = []
    for app, arn in zip(found, arns, strict=True):
        job = jobs[arn]
        if job is not None:
            started = job.get("TrainingStartTime")
            set_times(app, app.submitted, started=started, ended=app.ended)
            own.append(app)
    return own


def _find_own(clients: Clients, arn: str) -> Mapping[str, Any] | None:
    """Return the training job with an ARN, or None if TorchX did not submit the job."""
    return find(clients, arn.rpartition("/")[2]) if has_own_tag(clients, arn) else None


def _search(clients: Clients, after: datetime) -> dict[str, Mapping[str, Any] | None]:
    """Return the jobs that ``Search`` finds, by ARN; None stands for a job of another program.

    Without the permission to search, the dict is empty.
    """
    jobs: dict[str, Mapping[str, Any] | None] = {}
    created = {
        "Name": "CreationTime",
        "Operator": "GreaterThanOrEqualTo",
        "Value": after.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    try:
        with aws_errors("search training jobs"):
            pages = clients.client("sagemaker").get_paginator("search")
            for page in pages.paginate(
                Resource="TrainingJob",
                SearchExpression={"Filters": [created]},
                PaginationConfig={"PageSize": PAGE_SIZE},
            ):
                for result in page["Results"]:
                    job = result["TrainingJob"]
                    tags = [tag["Key"] for tag in job.get("Tags") or ()]
                    is_own = TAG_TORCHX_VER in tags
                    jobs[str(job["TrainingJobArn"])] = job if is_own else None
    except AccessDeniedError as e:
        logger.debug("querying the tags of each training job: %s", e)
    return jobs


def has_own_tag(clients: Clients, arn: str) -> bool:
    """Return whether a training job has the tag with TorchX's version; False if it is missing.

    Raises:
        AwsError: AWS refused the request or did not answer.
    """
    try:
        with aws_errors(f"list the tags of {arn}"):
            pages = clients.client("sagemaker").get_paginator("list_tags")
            return any(
                tag["Key"] == TAG_TORCHX_VER
                for page in pages.paginate(ResourceArn=arn)
                for tag in page["Tags"]
            )
    except AwsError as e:
        if _is_missing(e):
            return False
        raise


def check_own(clients: Clients, job: Mapping[str, Any], action: str) -> None:
    """Raise an error unless TorchX submitted a training job.

    Args:
        clients: The boto3 clients to use.
        job: The job, as ``DescribeTrainingJob`` returns it.
        action: The verb of the error message, for example "delete".

    Raises:
        RequestError: TorchX did not submit the job.
        AwsError: AWS refused the request or did not answer.
    """
    # TorchX's own variable saves a request; upstream's TorchX does not set it.
    if ENV_TORCHX_ROLE_NAME in (job.get("Environment") or {}):
        return
    if not has_own_tag(clients, str(job["TrainingJobArn"])):
        name = job["TrainingJobName"]
        raise RequestError(
            f"cannot {action} {name}: TorchX did not submit this training job (it has no tag"
            f" '{TAG_TORCHX_VER}'); to end the job, run: aws sagemaker stop-training-job"
            f" --training-job-name {name}"
        )


def stop(clients: Clients, app_id: str) -> None:
    """Stop a training job. A job that is missing or has ended is not an error.

    Raises:
        AwsError: AWS refused the request or did not answer.
    """
    try:
        with aws_errors(f"stop the training job {app_id}"):
            clients.client("sagemaker").stop_training_job(TrainingJobName=app_id)
    except AwsError as e:
        if e.code != "ValidationException" or _ENDED_TEXT not in str(e):
            if _is_missing(e):
                return
            raise


def delete(
    clients: Clients,
    app_id: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Stop a training job, wait until it has stopped, and delete it.

    A missing job is not an error. A boto3 that cannot delete training jobs causes a warning.

    Args:
        clients: The boto3 clients to use.
        app_id: The job's name.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns a time in seconds.

    Raises:
        RequestError: TorchX did not submit the job.
        AwsError: AWS refused a request or did not answer, or the job did not stop in time.
    """
    deadline = clock() + STOP_TIMEOUT
    first_pause, longest_pause = STOP_PAUSES
    backoff = Backoff(0, first_pause=first_pause, longest_pause=longest_pause, sleep=sleep)
    stopped = checked = False
    while True:
        job = find(clients, app_id)
        if job is None:
            return
        if not checked:
            check_own(clients, job, "delete")
            checked = True
        status = job["TrainingJobStatus"]
        if status in ("Completed", "Failed", "Stopped"):
            break
        if not stopped:
            stop(clients, app_id)
            stopped = True
        if clock() > deadline:
            raise AwsError(
                f"cannot delete the training job {app_id}: it is still {status} after"
                f" {STOP_TIMEOUT:.0f} seconds; try again later"
            )
        backoff.pause()
    client = clients.client("sagemaker")
    if not hasattr(client, "delete_training_job"):
        logger.warning(
            "training job %s has ended, but stays in SageMaker's list: this boto3 cannot delete"
            " training jobs; upgrade boto3",
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
    """Return the end of a training job in seconds since 1970, or None if it has not ended.

    Return 0.0 if the job has ended at an unknown time.
    """
    if not is_terminal(job_state(job["TrainingJobStatus"], str(job.get("SecondaryStatus") or ""))):
        return None
    when = job.get("TrainingEndTime") or job.get("LastModifiedTime")
    return when.timestamp() if isinstance(when, datetime) else 0.0
