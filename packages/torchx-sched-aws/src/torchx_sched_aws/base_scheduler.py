"""What both schedulers are: clients of AWS, workspaces in images, logs in CloudWatch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_aws.cloudwatch import check_streams
from torchx_specs.errors import UnknownAppException
from torchx_specs.schedulers.api import Scheduler, Stream, T, filter_regex
from torchx_specs.workspace.builder import BuilderOutput

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_sched_aws.client import Clients
    from torchx_sched_aws.cloudwatch import ReplicaLog
    from torchx_specs.model.app import AppDef
    from torchx_specs.model.dryrun import AppDryRunInfo


class AwsScheduler(BuilderWorkspaceMixin, Scheduler[T]):
    """A scheduler of AWS.

    Args:
        backend: its name
        session_name: who submits
        clients: of AWS
        log_settle: how long after the end of a replica its log may grow, in seconds
    """

    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})

    def __init__(
        self, backend: str, session_name: str, clients: Clients, log_settle: float
    ) -> None:
        super().__init__(backend, session_name)
        self._clients = clients
        self._log_settle = log_settle

    def close(self) -> None:
        """Closes the connections; jobs run on."""
        self._clients.close()

    def _validate(self, app: AppDef, scheduler: str, cfg: T | None = None) -> None:
        """Nothing more than the dry run checks: which resources a role needs is said there."""

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Builds what the workspace still needs, and submits.

        Raises:
            RequestError: AWS finds something wrong with the request
            AwsError: AWS refuses, or does not answer
            WorkspaceError: the workspace cannot be built
        """
        self.build_pending(dryrun_info)
        return self._submit_request(dryrun_info.request)

    @abstractmethod
    def _submit_request(self, request: Any) -> str:
        """Submits the request of a dry run and returns the app's id."""

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
    ) -> Iterable[str]:
        """Returns the lines of a replica, those of all its starts one after the other.

        CloudWatch keeps both outputs together, so ``streams`` may only be both.

        Raises:
            UnknownAppException: no such app
            RequestError: no such role or replica, or one output by itself
            AwsError: AWS refuses, or is silent for long
        """
        check_streams(self.backend, streams)
        log = self._log(app_id, role_name, k)
        if log is None:
            raise UnknownAppException(f"{self.backend}://{self.session_name}/{app_id}")
        lines: Iterable[str] = log.lines(should_tail, since, until, self._log_settle)
        return filter_regex(regex, lines) if regex else lines

    @abstractmethod
    def _log(self, app_id: str, role_name: str, k: int) -> ReplicaLog | None:
        """Returns the log of a replica, None if there is no such app.

        Raises:
            RequestError: no such role or replica
        """
