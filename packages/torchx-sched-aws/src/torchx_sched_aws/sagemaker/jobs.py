"""Create, find, list, stop and delete training jobs."""

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
from torchx_sched_aws.base_scheduler import ServiceJobs
from torchx_sched_aws.client import AccessDeniedError, AwsError, Clients, announced, aws_errors
from torchx_sched_aws.model_limits import LIST_TRAINING_JOBS
from torchx_sched_aws.sagemaker.describe import describe
from torchx_sched_aws.sagemaker.options import ROLE_ARN
from torchx_sched_aws.sagemaker.request import ENV_TORCHX_ROLE_NAME, AWSSageMakerJob
from torchx_sched_aws.sagemaker.states import job_state
from torchx_sched_aws.tags import TAG_TORCHX_VER
from torchx_specs.errors import RequestError
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS, DescribeAppResponse, ListAppResponse

#: Maximum number of jobs in a response.
PAGE_SIZE: int = LIST_TRAINING_JOBS["MaxResults"]["max"]
#: Number of jobs whose tags are requested concurrently.
PARALLEL_TAGS = 8
#: How long :func:`delete` waits until a job has stopped, in seconds.
STOP_TIMEOUT = 300.0
STOP_PAUSES = (0.5, 5.0)
_NOT_FOUND = ("ResourceNotFound", "ResourceNotFoundException")
# SageMaker reports a missing job and an ended job as ValidationException, with these texts.
_NOT_FOUND_TEXT = "Requested resource not found"
_ENDED_TEXT = "is in status"
_ENDED = ("Completed", "Failed", "Stopped")

logger = logging.getLogger(__name__)


class SubmissionError(RequestError, AwsError):
    """SageMaker rejected the request as invalid."""

    exit_code = 2

    def __init__(self, text: str, code: str) -> None:
        AwsError.__init__(self, text, code)
        self.problems = (text,)


class TrainingJobs(ServiceJobs):
    """The training jobs in the clients' account and region.

    Args:
        clients: The boto3 clients to use.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns a time in seconds.
    """

    service = "sagemaker"
    job_term = "training job"
    end_command = "aws sagemaker stop-training-job --training-job-name {TrainingJobName}"

    def __init__(
        self,
        clients: Clients,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clients)
        self._sleep = sleep
        self._clock = clock

    def submit(self, request: AWSSageMakerJob) -> str:
        """Create a training job and return its name.

        Raises:
            SubmissionError: SageMaker rejected the request as invalid.
            AwsError: AWS refused the request or did not answer.
        """
        name, parameters = request.job_name, dict(request.job_def)
        role = str(parameters.get("RoleArn") or "")
        if not ROLE_ARN.fullmatch(role):
            with aws_errors(f"look up the IAM role '{role}'"):
                found = self._clients.client("iam").get_role(RoleName=role)
            parameters["RoleArn"] = found["Role"]["Arn"]
        try:
            with announced(name), aws_errors(f"create the training job {name}"):
                self.client.create_training_job(**parameters)
        except AwsError as e:
            if e.code == "ResourceInUse" and self._was_created(parameters):
                return name  # the response was lost, and the SDK repeated the request
            if e.code in ("ParamValidation", "ValidationException", "ResourceInUse"):
                raise SubmissionError(str(e), e.code) from e
            raise
        return name

    def _was_created(self, request: Mapping[str, Any]) -> bool:
        """Return whether this request created the existing job of the same name.

        Names are random, so the same image and IAM role are sufficient evidence.
        """
        found = self.find(str(request["TrainingJobName"]))
        image = request["AlgorithmSpecification"].get("TrainingImage")
        return found is not None and (
            found["AlgorithmSpecification"].get("TrainingImage") == image
            and found.get("RoleArn") == request["RoleArn"]
        )

    def _find(self, app_id: str) -> dict[str, Any] | None:
        if not SAGEMAKER.accepts(app_id):
            return None
        try:
            with aws_errors(f"describe the training job {app_id}"):
                found: dict[str, Any] = self.client.describe_training_job(TrainingJobName=app_id)
        except AwsError as e:
            if _is_missing(e):
                return None
            raise
        return None if found["TrainingJobStatus"] == "Deleting" else found

    def describe(self, app_id: str, job: dict[str, Any]) -> DescribeAppResponse:
        """Return the description of the app with this job."""
        return describe(app_id, job)

    def list(self, session_name: str, cfg: Mapping[str, CfgVal]) -> list[ListAppResponse]:
        """Return the training jobs that TorchX submitted in the last two weeks, the newest first.

        ``ListTrainingJobs`` returns neither tags nor start times. ``Search`` returns both, 100 jobs
        a request, but its index may lack the newest jobs. Each of those takes two more requests.

        Args:
            session_name: Name of the session, for the app handles.
            cfg: The scheduler's options.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        after = datetime.now(timezone.utc) - timedelta(days=DAYS_IN_2_WEEKS)
        with aws_errors("list training jobs"):
            pages = self.client.get_paginator("list_training_jobs").paginate(
                CreationTimeAfter=after,
                SortBy="CreationTime",
                SortOrder="Descending",
                PaginationConfig={"PageSize": PAGE_SIZE},
            )
            items = {
                str(item["TrainingJobArn"]): item
                for page in pages
                for item in page["TrainingJobSummaries"]
                if item["TrainingJobStatus"] != "Deleting"
            }
        jobs = self._search(after) if items else {}
        unknown = [arn for arn in items if arn not in jobs]
        with ThreadPoolExecutor(PARALLEL_TAGS) as pool:
            jobs.update(zip(unknown, pool.map(self._find_own, unknown), strict=True))
        return [
            _list_item(item, job, session_name)
            for arn, item in items.items()
            if (job := jobs[arn]) is not None
        ]

    def _find_own(self, arn: str) -> Mapping[str, Any] | None:
        """Return the training job with an ARN, or None if TorchX did not submit the job."""
        return self.find(arn.rpartition("/")[2]) if self._has_own_tag(arn) else None

    def _search(self, after: datetime) -> dict[str, Mapping[str, Any] | None]:
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
                for page in self.client.get_paginator("search").paginate(
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

    def is_own(self, job: Mapping[str, Any]) -> bool:
        """Return whether TorchX submitted a training job.

        Args:
            job: The job, as ``DescribeTrainingJob`` returns it.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        # TorchX's own variable saves a request; upstream's TorchX does not set it.
        own_variable = ENV_TORCHX_ROLE_NAME in (job.get("Environment") or {})
        return own_variable or self._has_own_tag(str(job["TrainingJobArn"]))

    def _has_own_tag(self, arn: str) -> bool:
        """Return whether a training job exists and has the tag with TorchX's version."""
        try:
            with aws_errors(f"list the tags of {arn}"):
                return any(
                    tag["Key"] == TAG_TORCHX_VER
                    for page in self.client.get_paginator("list_tags").paginate(ResourceArn=arn)
                    for tag in page["Tags"]
                )
        except AwsError as e:
            if _is_missing(e):
                return False
            raise

    def cancel(self, job: Mapping[str, Any]) -> None:
        """Stop a training job. A job that is missing or has ended is not an error.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        app_id = str(job["TrainingJobName"])
        try:
            with aws_errors(f"stop the training job {app_id}"):
                self.client.stop_training_job(TrainingJobName=app_id)
        except AwsError as e:
            ended = e.code == "ValidationException" and _ENDED_TEXT in str(e)
            if not ended and not _is_missing(e):
                raise

    def delete(self, app_id: str, job: dict[str, Any]) -> None:
        """Stop a training job, wait until it has stopped, and delete it.

        A boto3 that cannot delete training jobs causes a warning.

        Args:
            app_id: The job's name.
            job: The job, as ``DescribeTrainingJob`` returns it.

        Raises:
            AwsError: AWS refused a request or did not answer, or the job did not stop in time.
        """
        current: dict[str, Any] | None = job
        deadline = self._clock() + STOP_TIMEOUT
        first_pause, longest_pause = STOP_PAUSES
        backoff = Backoff(
            0, first_pause=first_pause, longest_pause=longest_pause, sleep=self._sleep
        )
        if job["TrainingJobStatus"] not in _ENDED:
            self.cancel(job)
        while current is not None and current["TrainingJobStatus"] not in _ENDED:
            if self._clock() > deadline:
                status = current["TrainingJobStatus"]
                raise AwsError(
                    f"cannot delete the training job {app_id}: it is still {status} after"
                    f" {STOP_TIMEOUT:.0f} seconds; try again later"
                )
            backoff.pause()
            current = self.find(app_id)
        if current is None:
            return
        if not hasattr(self.client, "delete_training_job"):
            logger.warning(
                "training job %s has ended, but stays in SageMaker's list: this boto3 cannot delete"
                " training jobs; upgrade boto3",
                app_id,
            )
            return
        try:
            with aws_errors(f"delete the training job {app_id}"):
                self.client.delete_training_job(TrainingJobName=app_id)
        except AwsError as e:
            if not _is_missing(e):
                raise


def _is_missing(error: AwsError) -> bool:
    return error.code in _NOT_FOUND or _NOT_FOUND_TEXT in str(error)


def _list_item(
    item: Mapping[str, Any], job: Mapping[str, Any], session_name: str
) -> ListAppResponse:
    name = str(item["TrainingJobName"])
    state = job_state(item["TrainingJobStatus"], item.get("SecondaryStatus") or "")
    handle = f"aws_sagemaker://{session_name}/{name}"
    app = ListAppResponse(name, state, handle, name.rpartition("-")[0] or name)
    started, ended = job.get("TrainingStartTime"), item.get("TrainingEndTime")
    set_times(app, item["CreationTime"], started=started, ended=ended)
    app.exit_code = 0 if state == AppState.SUCCEEDED else None
    return app


def ended_at(job: Mapping[str, Any]) -> float | None:
    """Return the end of a training job in seconds since 1970, or None if it has not ended.

    Return 0.0 if the job has ended at an unknown time.
    """
    if not is_terminal(job_state(job["TrainingJobStatus"], str(job.get("SecondaryStatus") or ""))):
        return None
    when = job.get("TrainingEndTime") or job.get("LastModifiedTime")
    return when.timestamp() if isinstance(when, datetime) else 0.0
