"""Base class of the AWS schedulers: boto3 clients, container images, CloudWatch logs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_aws.cloudwatch import CloudWatchLogs
from torchx_specs.schedulers.api import Scheduler, T
from torchx_specs.schedulers.features import No, SchedulerFeatures

if TYPE_CHECKING:
    from torchx_sched_aws.client import Clients
    from torchx_sched_aws.cloudwatch import ReplicaLog
    from torchx_specs.model.app import AppDryRunInfo


#: Why bytes that are not UTF-8 are refused.
NOT_UTF8 = "AWS's API is JSON"


class AwsScheduler(BuilderWorkspaceMixin, Scheduler[T]):
    """A scheduler that runs apps on an AWS service.

    Args:
        backend: Name of the scheduler.
        session_name: Name of the TorchX session.
        clients: The boto3 clients to use.
        log_delay: How long the last log lines may take to arrive after a replica's end, in seconds.
    """

    features = SchedulerFeatures(
        not_utf8=No(NOT_UTF8),
        time_limit=True,
        logs=True,
        streams=No("CloudWatch keeps both outputs in one stream"),
        last=True,
        partial=No("CloudWatch receives whole lines"),
        blank_lines=No("CloudWatch has no event without text"),
    )
    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})

    def __init__(self, backend: str, session_name: str, clients: Clients, log_delay: float) -> None:
        super().__init__(backend, session_name)
        self._clients = clients
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
        return self._submit_request(dryrun_info.request)

    @abstractmethod
    def _submit_request(self, request: Any) -> str:
        """Submit the request of a dry run and return the app id."""

    @property
    def app_logs(self) -> CloudWatchLogs:
        """Reads logs in CloudWatch."""
        return CloudWatchLogs(self)

    def cancel(self, app_id: str) -> None:
        """End an app. A missing app is not an error."""
        self._cancel_existing(app_id)  # which itself finds the job

    @abstractmethod
    def _log(self, app_id: str, role_name: str, k: int) -> ReplicaLog | None:
        """Return the log of a replica, or None if the app does not exist.

        Raises:
            RequestError: The role or replica does not exist.
        """
