"""Base classes of the AWS schedulers and of the jobs of their services."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_aws.client import Clients
from torchx_sched_aws.cloudwatch import LOG_DELAY, CloudWatchLogs
from torchx_sched_aws.tags import TAG_TORCHX_VER
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, T
from torchx_specs.schedulers.features import No, SchedulerFeatures

if TYPE_CHECKING:
    from torchx_sched_aws.cloudwatch import ReplicaLog

#: Why bytes that are not UTF-8 are refused.
NOT_UTF8 = "AWS's API is JSON"


class ServiceJobs(ABC):
    """The jobs of an AWS service in the clients' account and region; thread-safe.

    Args:
        clients: The boto3 clients to use.
    """

    #: Name of the service in boto3.
    service: ClassVar[str]
    #: What the service calls a job, for messages.
    job_term: ClassVar[str]
    #: Command that ends a job of another tool, with the names of the job's fields in braces.
    end_command: ClassVar[str]

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._found: CoalescingCache[dict[str, Any]] = CoalescingCache()

    @property
    def client(self) -> Any:
        """The boto3 client of the service."""
        return self._clients.client(self.service)

    def find(self, app_id: str, max_age: float = 0.0) -> dict[str, Any] | None:
        """Return the job of an app as the service describes it, or None if it does not exist.

        Concurrent callers share one request.

        Args:
            app_id: Id of the app.
            max_age: Maximum age of a cached description, in seconds.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        return self._found.get(app_id, lambda _: self._find(app_id), max_age)

    def find_own(self, app_id: str, action: str) -> dict[str, Any] | None:
        """Return the job of an app, or None if it does not exist.

        Args:
            app_id: Id of the app.
            action: The verb of the error message, for example "delete".

        Raises:
            RequestError: TorchX did not submit the job.
            AwsError: AWS refused the request or did not answer.
        """
        job = self.find(app_id)
        if job is not None and not self.is_own(job):
            raise RequestError(
                f"cannot {action} {app_id}: TorchX did not submit this {self.job_term} (it has no"
                f" tag '{TAG_TORCHX_VER}'); to end the job, run:"
                f" {self.end_command.format_map(job)}"
            )
        return job

    @abstractmethod
    def _find(self, app_id: str) -> dict[str, Any] | None:
        """Return the job of an app; see :meth:`find`."""

    @abstractmethod
    def is_own(self, job: Mapping[str, Any]) -> bool:
        """Return whether TorchX submitted a job."""

    @abstractmethod
    def submit(self, request: Any) -> str:
        """Submit a request and return the app id.

        Raises:
            RequestError: The request is not valid.
            AwsError: AWS refused the request or did not answer.
        """

    @abstractmethod
    def describe(self, app_id: str, job: dict[str, Any]) -> DescribeAppResponse:
        """Return the description of the app with this job."""

    @abstractmethod
    def list(self, session_name: str, cfg: Mapping[str, CfgVal]) -> list[ListAppResponse]:
        """Return the jobs that TorchX submitted.

        Args:
            session_name: Name of the session, for the app handles.
            cfg: The scheduler's options.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """

    @abstractmethod
    def cancel(self, job: Mapping[str, Any]) -> None:
        """End a job. A job that has ended is not an error."""

    @abstractmethod
    def delete(self, app_id: str, job: dict[str, Any]) -> None:
        """End the job of an app, and remove it as far as the service can."""


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
    #: The class of the service's jobs.
    jobs: ClassVar[type[ServiceJobs]]
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
        self._clients = Clients({self.jobs.service: client, "logs": log_client})
        self._jobs = self.jobs(self._clients)
        self._log_delay = log_delay

    @property
    def _client(self) -> Any:
        return self._jobs.client

    def close(self) -> None:
        """Close the connections to AWS; jobs keep running."""
        super().close()
        self._clients.close()

    def _submit_dryrun(self, app: AppDef, cfg: T) -> AppDryRunInfo[Any]:
        return AppDryRunInfo(self._make_request(app, cfg), str)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Build and push the images that the dry run planned, then submit the job.

        Raises:
            RequestError: The request is not valid.
            AwsError: AWS refused the request or did not answer.
            WorkspaceError: The workspace image could not be built or pushed.
        """
        self.build_pending(dryrun_info)
        return self._jobs.submit(dryrun_info.request)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if it does not exist.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        job = self._jobs.find(app_id)
        return None if job is None else self._jobs.describe(app_id, job)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the jobs that TorchX submitted.

        Batch keeps jobs for a week or longer after their end. Of SageMaker's jobs, those of the
        last two weeks are listed.

        Args:
            cfg: The options; with ``queue``, list only the jobs of that queue.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        return self._jobs.list(self.session_name, cfg or {})

    def cancel(self, app_id: str) -> None:
        """End an app. A missing app is not an error."""
        self._cancel_existing(app_id)  # which itself finds the job

    def _cancel_existing(self, app_id: str) -> None:
        job = self._jobs.find_own(app_id, "cancel")
        if job is not None:
            self._jobs.cancel(job)

    def delete(self, app_id: str) -> None:
        """End an app's job and delete it. A missing app is not an error.

        Batch itself removes jobs only days after their end, so a tag marks the job as deleted; the
        job definition is deregistered if no other job uses it. On SageMaker, wait until the job has
        stopped.
        """
        job = self._jobs.find_own(app_id, "delete")
        if job is not None:
            self._jobs.delete(app_id, job)

    @property
    def app_logs(self) -> CloudWatchLogs:
        """Reads logs in CloudWatch."""
        return CloudWatchLogs(self)

    @abstractmethod
    def _make_request(self, app: AppDef, cfg: T) -> Any:
        """Return the request for an app, without contacting AWS."""

    @abstractmethod
    def _log(self, app_id: str, role_name: str, k: int) -> ReplicaLog | None:
        """Return the log of a replica, or None if the app does not exist.

        Raises:
            RequestError: The role or replica does not exist.
        """
