"""``aws_sagemaker``: runs apps of one role as training jobs of Amazon SageMaker.

Each replica is an instance of the job. Requests are made with boto3; the SageMaker SDK is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_kit.names.limits import SAGEMAKER
from torchx_kit.retry import Backoff
from torchx_kit.role_checks import check_replica
from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.client import AwsError, announced, is_denied
from torchx_sched_aws.cloudwatch import LOG_DELAY, POLL_PAUSES, PollStreams
from torchx_sched_aws.model_limits import LIST_TRAINING_JOBS
from torchx_sched_aws.sagemaker.describe import describe, read_role
from torchx_sched_aws.sagemaker.options import ROLE_ARN, RULES, AWSSageMakerOpts
from torchx_sched_aws.sagemaker.request import (
    ENV_TORCHX_ROLE_NAME,
    AWSSageMakerJob,
    make_request,
    request_problems,
)
from torchx_sched_aws.sagemaker.states import ended_at
from torchx_sched_aws.tags import TAG_TORCHX_VER
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS, DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.features import No

#: Log group of training jobs.
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
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
    """

    name = "aws_sagemaker"
    service = "sagemaker"
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
    ) -> None:
        super().__init__(session_name, client, log_client, log_delay=log_delay)

    def _request_problems(self, app: AppDef, cfg: AWSSageMakerOpts) -> Iterable[str]:
        return request_problems(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: AWSSageMakerOpts) -> AppDryRunInfo[AWSSageMakerJob]:
        return AppDryRunInfo(make_request(app, cfg), str)

    def _log_of(
        self, app_id: str, job: Mapping[str, Any], role_name: str, k: int
    ) -> tuple[str, PollStreams]:
        role = read_role(job)
        check_replica(app_id, {role.name: role.num_replicas}, role_name, k)
        prefix = f"{app_id}/algo-{k + 1}-"
        # How many starts the job had when the log streams of all starts had been found.
        complete_at: int | None = None

        def poll() -> tuple[float | None, list[str]]:
            nonlocal complete_at
            # Followers of the same job share one request.
            found = self.find_job(app_id, POLL_PAUSES[0])
            history = [] if found is None else found.get("SecondaryStatusTransitions") or []
            starts = [item["Status"] for item in history].count("Training")
            ended = 0.0 if found is None else ended_at(found)
            if ended is None and starts == complete_at:
                return None, []
            streams = self._clients.items(
                "logs",
                "describe_log_streams",
                "logStreams",
                f"list the log streams of {app_id}",
                # The first job of an account creates the log group.
                lambda e: ended is None and e.code == "ResourceNotFoundException",
                logGroupName=LOG_GROUP,
                logStreamNamePrefix=prefix,
            )
            names = sorted(str(stream["logStreamName"]) for stream in streams)
            # A stream appears shortly after its container has started.
            if names and len(names) >= starts:
                complete_at = starts
            return ended, names

        return LOG_GROUP, poll

    def submit_request(self, request: AWSSageMakerJob) -> str:
        """Create a training job and return its name.

        Raises:
            RequestError: SageMaker rejected the request as invalid.
            AwsError: AWS refused the request or did not answer.
        """
        name, parameters = request.job_name, dict(request.job_def)
        role = str(parameters.get("RoleArn") or "")
        if not ROLE_ARN.fullmatch(role):
            action = f"look up the IAM role '{role}'"
            found = self._clients.call("iam", "get_role", action, RoleName=role)
            parameters["RoleArn"] = found["Role"]["Arn"]
        try:
            with announced(name):
                self._call("create_training_job", f"create the training job {name}", **parameters)
        except AwsError as e:
            if e.code == "ResourceInUse" and self._was_created(parameters):
                return name  # the response was lost, and the SDK repeated the request
            if e.code in ("ParamValidation", "ValidationException", "ResourceInUse"):
                raise RequestError(str(e)) from e
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
        action = f"describe the training job {app_id}"
        found: dict[str, Any] | None = self._call(
            "describe_training_job", action, _is_missing, TrainingJobName=app_id
        )
        return found if found and found["TrainingJobStatus"] != "Deleting" else None

    def _describe_job(self, app_id: str, job: Mapping[str, Any]) -> DescribeAppResponse:
        return describe(app_id, job)

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
        summaries = self._items(
            "list_training_jobs",
            "TrainingJobSummaries",
            "list training jobs",
            CreationTimeAfter=after,
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"PageSize": PAGE_SIZE},
        )
        items = [item for item in summaries if item["TrainingJobStatus"] != "Deleting"]
        jobs = self._search(after) if items else {}

        def app_of(item: Mapping[str, Any]) -> ListAppResponse | None:
            name = str(item["TrainingJobName"])
            job = jobs.get(item["TrainingJobArn"]) or self.find_job(name)
            if job is None or not self._is_own(job):
                return None
            return self._listed(describe(name, {**job, **item}), name.rpartition("-")[0] or name)

        with ThreadPoolExecutor(PARALLEL_TAGS) as pool:
            return [app for app in pool.map(app_of, items) if app is not None]

    def _search(self, after: datetime) -> dict[str, Mapping[str, Any]]:
        """Return the jobs that ``Search`` finds, by ARN; none without the permission to search."""
        created = {
            "Name": "CreationTime",
            "Operator": "GreaterThanOrEqualTo",
            "Value": after.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        results = self._items(
            "search",
            "Results",
            "search training jobs",
            is_denied,
            Resource="TrainingJob",
            SearchExpression={"Filters": [created]},
            PaginationConfig={"PageSize": PAGE_SIZE},
        )
        jobs = [{"Tags": [], **result["TrainingJob"]} for result in results]
        return {str(job["TrainingJobArn"]): job for job in jobs}

    def _is_own(self, job: Mapping[str, Any]) -> bool:
        """Return whether TorchX submitted a training job.

        Args:
            job: The job, as ``DescribeTrainingJob`` or ``Search`` returns it.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        # TorchX's own variable saves a request; upstream's TorchX does not set it.
        if ENV_TORCHX_ROLE_NAME in (job.get("Environment") or {}):
            return True
        tags = job.get("Tags")
        if tags is None:
            arn = job["TrainingJobArn"]
            action = f"list the tags of {arn}"
            tags = self._items("list_tags", "Tags", action, _is_missing, ResourceArn=arn)
        return any(tag["Key"] == TAG_TORCHX_VER for tag in tags)

    def _end(self, job: Mapping[str, Any]) -> None:
        """Stop a training job. A job that is missing or has ended is not an error."""
        app_id = str(job["TrainingJobName"])
        action = f"stop the training job {app_id}"
        self._call("stop_training_job", action, _is_over, TrainingJobName=app_id)

    def delete(self, app_id: str) -> None:
        """Stop a training job, wait until it has stopped, and delete it.

        A missing job is not an error. A boto3 that cannot delete training jobs causes a warning.

        Raises:
            AwsError: AWS refused a request or did not answer, or the job did not stop in time.
        """
        job = self._find_own(app_id, "delete")
        if job is not None and job["TrainingJobStatus"] not in _ENDED:
            self._end(job)
        first, longest = STOP_PAUSES
        backoff = Backoff(STOP_TIMEOUT, first_pause=first, longest_pause=longest)
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
        if not hasattr(self._clients.client("sagemaker"), "delete_training_job"):
            logger.warning(
                "training job %s has ended, but stays in SageMaker's list: this boto3 cannot delete"
                " training jobs; upgrade boto3",
                app_id,
            )
            return
        action = f"delete the training job {app_id}"
        self._call("delete_training_job", action, _is_missing, TrainingJobName=app_id)


def _is_missing(error: AwsError) -> bool:
    return error.code in _NOT_FOUND or _NOT_FOUND_TEXT in str(error)


def _is_over(error: AwsError) -> bool:
    """Return whether a job cannot be stopped because it is missing or has ended."""
    return _is_missing(error) or (error.code == "ValidationException" and _ENDED_TEXT in str(error))
