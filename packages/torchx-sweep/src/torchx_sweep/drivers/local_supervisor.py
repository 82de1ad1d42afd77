"""Methods of a scheduler that can supervise many short apps in the thread of its caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, AppDryRunInfo
    from torchx_specs.model.status import AppState


class AppEnd(Protocol):
    """The id of an app that has ended, its final state, and the reason for this state."""

    @property
    def app_id(self) -> str:
        """The app's id."""

    @property
    def state(self) -> AppState:
        """The app's final state."""

    @property
    def msg(self) -> str:
        """Why the app is in this state."""


class AppEnds(Protocol):
    """Supervises apps and reports their ends; ``LocalSupervisor.supervise_here`` returns it."""

    def wait(self, seconds: float) -> Sequence[AppEnd]:
        """Supervise the apps until an event or a timeout; return the ends since the last call."""

    def cancel(self, app_ids: Iterable[str]) -> None:
        """Request the cancellation of apps."""


class LocalSupervisor(Protocol):
    """A scheduler such as ``local_cwd``, whose apps are child processes of this process."""

    def share_supervision(self) -> None:
        """Supervise all apps of this process together, if this system can do that.

        The caller may continue in a child process; the parent then guards the apps.
        """

    def supervise_here(self) -> AppEnds | None:
        """Let the calling thread supervise the apps; return None if that is not possible."""

    def open_batch(self, name: str, app: AppDef, dryrun_info: AppDryRunInfo[Any]) -> Any:
        """Prepare a batch of apps that differ only in names, arguments and variables.

        Args:
            name: The beginning of the names of the apps.
            app: One of the apps, as it was before the dry run. It is not started.
            dryrun_info: The dry run of this app.

        Returns:
            The batch; None if the app cannot be part of a batch.
        """

    def start_in_batch(self, batch: Any, app: AppDef) -> str | None:
        """Start an app of a batch, and return its id; return None if it does not fit the batch."""
