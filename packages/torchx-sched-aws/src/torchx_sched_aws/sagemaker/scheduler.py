"""``aws_sagemaker``: runs apps of one role as training jobs of Amazon SageMaker.

Each replica is an instance of the job. Requests are made with boto3; the SageMaker SDK is not used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.names.limits import SAGEMAKER
from torchx_kit.retry import Backoff
from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.client import AccessDeniedError, AwsError, announced, aws_errors
from torchx_sched_aws.cloudwatch import LOG_DELAY
from torchx_sched_aws.model_limits import LIST_TRAINING_JOBS
from torchx_sched_aws.sagemaker.describe import describe
from torchx_sched_aws.sagemaker.logs import TrainingLog
from torchx_sched_aws.sagemaker.options import ROLE_ARN, RULES, AWSSageMakerOpts, request_problems
from torchx_sched_aws.sagemaker.request import ENV_TORCHX_ROLE_NAME, AWSSageMakerJob, make_request
from torchx_sched_aws.sagemaker.states import job_state
from torchx_sched_aws.tags import TAG_TORCHX_VER
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import AppState
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS, DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.features import No

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


def create_scheduler(session_name: str, **kwargs: Any) -> AWSSageMakerScheduler:
    """Return a scheduler; parameters of other schedulers are ignored."""
    return AWSSageMakerScheduler(session_name)


class AWSSageMakerScheduler(AwsScheduler[AWSSageMakerOpts]):
    r"""Runs apps as training jobs of SageMaker.

    .. code-block:: sh

        torchx run -s aws_sagemaker -cfg role=arn:aws:iam::123456789012:role/Trainer \
            -cfg instance_type=ml.p4d.24xlarge dist.ddp -j 2x8 --script train.py

    ``macros.rank0_env`` names a variable with the host name of the first instance.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of SageMaker to use instead of a new one.
        docker_client: Unused; kept for code written for upstream's TorchX.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        log_delay: How long the last log lines may take to arrive after a job's end, in seconds.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns a time in seconds.
    """

    name = "aws_sagemaker"
    service = "sagemaker"
    job_term = "training job"
    end_command = "aws sagemaker stop-training-job --training-job-name {TrainingJobName}"
    request_rules = RULES
    features = replace(
        AwsScheduler.features,
        retries=No("SageMaker starts a job again after its own errors, not after the program's"),
        restart_count=No("SageMaker starts a job again after its own errors only"),
        requeue=No("SageMaker starts a job again after a Spot interruption or its own errors only"),
        several_roles=No("a training job has one command for all of its instances"),
        secrets=No("the environment variables of a training job are plain text"),
        dependencies=No("a training job waits for no other job"),
        arrays=No("a request starts one training job"),
    )

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        docker_client: Any = None,
        *,
        log_client: Any = None,
        log_delay: float = LOG_DELAY,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(session_name, client, log_client, log_delay=log_delay)
        self._sleep = sleep
        self._clock = clock

    def _request_problems(self, app: AppDef, cfg: AWSSageMakerOpts) -> Iterable[str]:
        return request_problems(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: AWSSageMakerOpts) -> AppDryRunInfo[AWSSageMakerJob]:
        return AppDryRunInfo(make_request(app, cfg), str)

    def _log(self, app_id: str, role_name: str, k: int) -> TrainingLog | None:
        job = self.find_job(app_id)
        return None if job is None else TrainingLog(self, job, role_name, k)

    def submit_request(self, request: AWSSageMakerJob) -> str:
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
                self._client.create_training_job(**parameters)
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
        found = self.find_job(str(request["TrainingJobName"]))
        image = request["AlgorithmSpecification"].get("TrainingImage")
        return found is not None and (
            found["AlgorithmSpecification"].get("TrainingImage") == image
            and found.get("RoleArn") == request["RoleArn"]
        )

    def _find_job(self, app_id: str) -> dict[str, Any] | None:
        if not SAGEMAKER.accepts(app_id):
            return None
        try:
            with aws_errors(f"describe the training job {app_id}"):
                found: dict[str, Any] = self._client.describe_training_job(TrainingJobName=app_id)
        except AwsError as e:
            if _is_missing(e):
                return None
            raise
        return None if found["TrainingJobStatus"] == "Deleting" else found

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if it does not exist.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        job = self.find_job(app_id)
        return None if job is None else describe(app_id, job)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the training jobs that TorchX submitted in the last two weeks, the newest first.

        ``ListTrainingJobs`` returns neither tags nor start times. ``Search`` returns both, 100 jobs
        a request, but its index may lack the newest jobs. Each of those takes two more requests.

        Args:
            cfg: The scheduler's options, which have no effect.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        after = datetime.now(timezone.utc) - timedelta(days=DAYS_IN_2_WEEKS)
        with aws_errors("list training jobs"):
            pages = self._client.get_paginator("list_training_jobs").paginate(
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
            jobs.update(zip(unknown, pool.map(self._find_unknown, unknown), strict=True))
        return [
            _list_item(item, job, self.session_name)
            for arn, item in items.items()
            if (job := jobs[arn]) is not None
        ]

    def _find_unknown(self, arn: str) -> Mapping[str, Any] | None:
        """Return the training job with an ARN, or None if TorchX did not submit the job."""
        return self.find_job(arn.rpartition("/")[2]) if self._has_own_tag(arn) else None

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
                for page in self._client.get_paginator("search").paginate(
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

    def _is_own(self, job: Mapping[str, Any]) -> bool:
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
                    for page in self._client.get_paginator("list_tags").paginate(ResourceArn=arn)
                    for tag in page["Tags"]
                )
        except AwsError as e:
            if _is_missing(e):
                return False
            raise

    def _end(self, job: Mapping[str, Any]) -> None:
        """Stop a training job. A job that is missing or has ended is not an error."""
        app_id = str(job["TrainingJobName"])
        try:
            with aws_errors(f"stop the training job {app_id}"):
                self._client.stop_training_job(TrainingJobName=app_id)
        except AwsError as e:
            ended = e.code == "ValidationException" and _ENDED_TEXT in str(e)
            if not ended and not _is_missing(e):
                raise

    def delete(self, app_id: str) -> None:
        """Stop a training job, wait until it has stopped, and delete it.

        A missing job is not an error. A boto3 that cannot delete training jobs causes a warning.

        Raises:
            AwsError: AWS refused a request or did not answer, or the job did not stop in time.
        """
        job = self._find_own(app_id, "delete")
        if job is not None and job["TrainingJobStatus"] not in _ENDED:
            self._end(job)
        first_pause, longest_pause = STOP_PAUSES
        backoff = Backoff(
            STOP_TIMEOUT,
            first_pause=first_pause,
            longest_pause=longest_pause,
            sleep=self._sleep,
            clock=self._clock,
        )
        while job is not None and job["TrainingJobStatus"] not in _ENDED:
            status = job["TrainingJobStatus"]
            backoff.pause_after(
                AwsError(
                    f"cannot delete the training job {app_id}: it is still {status} after"
                    f" {STOP_TIMEOUT:.0f} seconds; try again later"
                )
            )
            job = self.find_job(app_id)
        if job is None:
            return
        if not hasattr(self._client, "delete_training_job"):
            logger.warning(
                "training job %s has ended, but stays in SageMaker's list: this boto3 cannot delete"
                " training jobs; upgrade boto3",
                app_id,
            )
            return
        try:
            with aws_errors(f"delete the training job {app_id}"):
                self._client.delete_training_job(TrainingJobName=app_id)
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
