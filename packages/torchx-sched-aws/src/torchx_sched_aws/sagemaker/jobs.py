"""Training jobs: find, list, stop, delete."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_kit.names.limits import SAGEMAKER
from torchx_kit.retry import Backoff
from torchx_sched_aws.client import AwsError, Clients, aws_errors
from torchx_sched_aws.sagemaker.states import job_state
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS, ListAppResponse

#: Maximum number of jobs in a response.
PAGE_SIZE = 100
#: How long :func:`delete` waits until a job has stopped, in seconds.
STOP_TIMEOUT = 300.0
STOP_PAUSES = (0.5, 5.0)
_NOT_FOUND = ("ResourceNotFound", "ResourceNotFoundException")
# SageMaker reports a missing job and an ended job as ValidationException, with these texts.
_NOT_FOUND_TEXT = "Requested resource not found"
_ENDED_TEXT = "is in status"

logger = logging.getLogger(__name__)


def find(clients: Clients, app_id: str) -> dict[str, Any] | None:
    """Return a training job as ``DescribeTrainingJob`` describes it, or None if it does not exist.

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
    """Return the training jobs of the last two weeks, the newest first.

    Each request returns up to 100 jobs.

    Raises:
        AwsError: AWS refused the request or did not answer.
    """
    after = datetime.now(timezone.utc) - timedelta(days=DAYS_IN_2_WEEKS)
    found = []
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
                found.append(ListAppResponse(name, state, handle, name.rpartition("-")[0] or name))
    return found


def stop(clients: Clients, app_id: str) -> None:
    """Stop a training job. A job that has ended is not an error.

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


def delete(clients: Clients, app_id: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Stop a training job, wait until it has stopped, and delete it.

    Raises:
        AwsError: AWS refused a request or did not answer, or the job did not stop in time.
    """
    deadline = time.monotonic() + STOP_TIMEOUT
    first_pause, longest_pause = STOP_PAUSES
    backoff = Backoff(0, first_pause=first_pause, longest_pause=longest_pause, sleep=sleep)
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
    """Return the end of a training job in seconds since 1970, or None if it has not ended."""
    if not is_terminal(job_state(job["TrainingJobStatus"], str(job.get("SecondaryStatus") or ""))):
        return None
    when = job.get("TrainingEndTime") or job.get("LastModifiedTime")
    return when.timestamp() if isinstance(when, datetime) else 0.0
