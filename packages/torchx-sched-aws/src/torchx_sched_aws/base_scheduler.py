"""Base class of the AWS schedulers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.jobs.descriptions import listed
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_aws.client import Clients
from torchx_sched_aws.cloudwatch import LOG_DELAY, CloudWatchLogs, PollStreams
from torchx_sched_aws.tags import TAG_TORCHX_VER
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDryRunInfo
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, T
from torchx_specs.schedulers.features import No, SchedulerFeatures

#: Why bytes that are not UTF-8 are refused.
NOT_UTF8 = "AWS's API is JSON"


class AwsScheduler(BuilderWorkspaceMixin, Scheduler[T]):
    """A scheduler that runs apps on an AWS service.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of the service to use instead of a new one.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        log_delay: How long the last log lines may take to arrive after a replica's end, in seconds.
    """

    #: Name of the scheduler.
    name: ClassVar[str]
    #: Name of the service in boto3.
    service: ClassVar[str]
    #: Command that ends a job of another tool, with the names of the job's fields in braces.
    end_command: ClassVar[str]
    features = SchedulerFeatures(
        not_utf8=No(NOT_UTF8),
        time_limit=True,
        logs=True,
        streams=No("CloudWatch keeps both outputs in one stream"),
        last=True,
        partial=No("CloudWatch receives whole lines"),
        attempt_marks=True,
        blank_lines=No("CloudWatch has no event without text"),
    )
    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        log_client: Any = None,
        *,
        log_delay: float = LOG_DELAY,
    ) -> None:
        super().__init__(self.name, session_name)
        self._clients = Clients({self.service: client, "logs": log_client})
        # Requests to the service.
        self._call = partial(self._clients.call, self.service)
        self._items = partial(self._clients.items, self.service)
        self._found: CoalescingCache[dict[str, Any]] = CoalescingCache()
        self._log_delay = log_delay

    def close(self) -> None:
        """Close the connections to AWS; jobs keep running."""
        super().close()
        self._clients.close()

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Build and push the images that the dry run planned, then submit the job.

        Raises:
            RequestError: The request is not valid.
            AwsError: AWS refused the request or did not answer.
            WorkspaceError: The workspace image could not be built or pushed.
        """
        self.build_pending(dryrun_info)
        return self.submit_request(dryrun_info.request)

    def cancel(self, app_id: str) -> None:
        """End an app. A missing app is not an error."""
        job = self._find_own(app_id, "cancel")
        if job is not None:
            self._end(job)

    def _cancel_existing(self, app_id: str) -> None:
        self.cancel(app_id)

    def find_job(self, app_id: str, max_age: float = 0.0) -> dict[str, Any] | None:
        """Return the job of an app as the service describes it, or None if it does not exist.

        Concurrent callers share one request.

        Args:
            app_id: Id of the app.
            max_age: Maximum age of a cached description, in seconds.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        return self._found.get(app_id, lambda _: self._find_job(app_id), max_age)

    def _find_own(self, app_id: str, action: str) -> dict[str, Any] | None:
        """Return the job of an app, or None if it does not exist.

        Args:
            app_id: Id of the app.
            action: The verb of the error message, for example "delete".

        Raises:
            RequestError: TorchX did not submit the job.
            AwsError: AWS refused the request or did not answer.
        """
        job = self.find_job(app_id)
        if job is not None and not self._is_own(job):
            raise RequestError(
                f"cannot {action} {app_id}: TorchX did not submit this job (it has no tag"
                f" '{TAG_TORCHX_VER}'); to end the job, run: {self.end_command.format_map(job)}"
            )
        return job

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if it does not exist.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        job = self.find_job(app_id)
        return None if job is None else self._describe_job(app_id, job)

    def _listed(self, described: DescribeAppResponse, name: str) -> ListAppResponse:
        """Return the item of a list for the description of an app with this name."""
        return listed(described, f"{self.name}://{self.session_name}/{described.app_id}", name)

    @property
    def app_logs(self) -> CloudWatchLogs:
        """Reads logs in CloudWatch."""
        return CloudWatchLogs(self)

    @abstractmethod
    def submit_request(self, request: Any) -> str:
        """Submit a request and return the app id.

        Raises:
            RequestError: The request is not valid.
            AwsError: AWS refused the request or did not answer.
        """

    @abstractmethod
    def _find_job(self, app_id: str) -> dict[str, Any] | None:
        """Return the job of an app; see :meth:`find_job`."""

    @abstractmethod
    def _describe_job(self, app_id: str, job: Mapping[str, Any]) -> DescribeAppResponse:
        """Return the description of an app whose job is known."""

    @abstractmethod
    def _end(self, job: Mapping[str, Any]) -> None:
        """End a job; one that has ended is not an error."""

    @abstractmethod
    def _is_own(self, job: Mapping[str, Any]) -> bool:
        """Return whether TorchX submitted a job."""

    @abstractmethod
    def _log_of(
        self, app_id: str, job: Mapping[str, Any], role_name: str, k: int
    ) -> tuple[str, PollStreams]:
        """Return the log group of a replica, and a function that finds the replica's streams.

        Raises:
            UnknownReplicaError: The role or replica does not exist.
            RequestError: The job does not send its logs to CloudWatch.
        """
