"""Base class of the AWS schedulers: boto3 clients, container images, CloudWatch logs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_kit.logs.lines import filter_regex
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_aws.cloudwatch import check_streams
from torchx_specs.errors import UnknownAppException
from torchx_specs.schedulers.api import Scheduler, Stream, T
from torchx_specs.schedulers.closing import closing_of

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_sched_aws.client import Clients
    from torchx_sched_aws.cloudwatch import ReplicaLog
    from torchx_specs.model.dryrun import AppDryRunInfo


class AwsScheduler(BuilderWorkspaceMixin, Scheduler[T]):
    """A scheduler that runs apps on an AWS service.

    Args:
        backend: Name of the scheduler.
        session_name: Name of the TorchX session.
        clients: The boto3 clients to use.
        log_delay: How long the last log lines may take to arrive after a replica's end, in seconds.
    """

    lacks: ClassVar[Mapping[str, str]] = {
        "streams": "CloudWatch keeps both outputs in one stream",
        "blank_lines": "CloudWatch has no event without text",
        "not_utf8": "AWS's API is JSON; such values are refused before submission",
    }
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

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        *,
        last: int | None = None,
        partial: bool = False,
    ) -> Iterable[str]:
        """Return the log lines of all attempts of a replica, oldest attempt first.

        CloudWatch stores stdout and stderr together, so ``streams`` must be None or COMBINED.
        CloudWatch receives whole lines, so ``partial`` has no effect.

        Raises:
            UnknownAppException: The app does not exist.
            RequestError: The role or replica does not exist, or ``streams`` is stdout or stderr.
            AwsError: AWS refused the request, or did not answer for several minutes.
        """
        closing = closing_of(self)
        check_streams(self.backend, streams)
        log = self._log(app_id, role_name, k)
        if log is None:
            raise UnknownAppException(f"{self.backend}://{self.session_name}/{app_id}")
        lines: Iterable[str] = log.lines(should_tail, since, until, self._log_delay, last, closing)
        return filter_regex(regex, lines) if regex else lines

    @abstractmethod
    def _log(self, app_id: str, role_name: str, k: int) -> ReplicaLog | None:
        """Return the log of a replica, or None if the app does not exist.

        Raises:
            RequestError: The role or replica does not exist.
        """
