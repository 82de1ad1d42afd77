"""States of an app and of its replicas."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import AppStatusError
from torchx_specs.model.constants import NONE

if TYPE_CHECKING:
    from datetime import datetime


class AppState(int, Enum):
    """State of an application.

    An app moves from UNSUBMITTED through SUBMITTED, PENDING and RUNNING to one of the terminal
    states SUCCEEDED, FAILED and CANCELLED. A preempted app returns from RUNNING to PENDING.

    1. UNSUBMITTED - not yet submitted to the scheduler
    2. SUBMITTED - accepted by the scheduler
    3. PENDING - waiting for resources
    4. RUNNING - at least one replica runs
    5. SUCCEEDED - completed successfully
    6. FAILED - completed unsuccessfully
    7. CANCELLED - ended by a user before it completed
    8. UNKNOWN - the scheduler does not know the state
    """

    UNSUBMITTED = 0
    SUBMITTED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    UNKNOWN = 7

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name} ({self.value})"

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


ReplicaState = AppState


def is_terminal(state: AppState) -> bool:
    """Return True for SUCCEEDED, FAILED and CANCELLED."""
    return state in (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)


def is_started(state: AppState) -> bool:
    """Return True for RUNNING and the terminal states."""
    return state == AppState.RUNNING or is_terminal(state)


@dataclass
class ReplicaStatus:
    """Status of one replica of a role.

    Args:
        id: Index of the replica within its role.
        state: State of the replica.
        role: Name of the role.
        hostname: Host name at which other replicas reach this replica.
        structured_error_msg: Error of the replica as JSON, or ``<NONE>``.
        hostaddr: Address of the host (default: the host name).
        reason: Reason of the state (``OOMKilled``, ``Unschedulable: ...``), or an empty string.
        exit_code: Exit code of the replica's process, negative for a signal; None if unknown.
        node: Name of the machine in the scheduler; None if unknown.
        restarts: Number of restarts of the replica.
        started: When the replica last started, with a time zone; None if unknown.
        ended: When the replica ended; None if it has not ended, or if unknown.
    """

    id: int
    state: ReplicaState
    role: str
    hostname: str
    structured_error_msg: str = NONE
    hostaddr: str | None = None
    reason: str = ""
    exit_code: int | None = None
    node: str | None = None
    restarts: int = 0
    started: datetime | None = None
    ended: datetime | None = None

    def __post_init__(self) -> None:
        if self.hostaddr is None:
            self.hostaddr = self.hostname


@dataclass
class RoleStatus:
    """Status of the replicas of one role."""

    role: str
    replicas: list[ReplicaStatus]

    def to_json(self) -> dict[str, Any]:
        """Return the status as a dict for ``json.dumps``.

        A replica's ``state`` is a number, because existing scripts expect one; ``state_name`` is
        the name of this state. Times are RFC 3339 texts.
        """
        replicas = [{**asdict(r), "state_name": r.state.name} for r in self.replicas]
        for replica in replicas:
            for name in ("started", "ended"):
                time = replica[name]
                replica[name] = time and time.isoformat().replace("+00:00", "Z")
        return {"role": self.role, "replicas": replicas}


@dataclass
class AppStatus:
    """Status of an app; ``roles`` has only the replicas of the most recent attempt.

    The times have a time zone, and are None if unknown.
    """

    state: AppState
    num_restarts: int = 0
    msg: str = ""
    structured_error_msg: str = NONE
    ui_url: str | None = None
    roles: list[RoleStatus] = field(default_factory=list)
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None

    def is_terminal(self) -> bool:
        """Return True if the app has ended."""
        return is_terminal(self.state)

    def raise_for_status(self) -> None:
        """Raise an error unless the app succeeded.

        Raises:
            AppStatusError: The app failed, was cancelled, or has not ended.
        """
        if self.state != AppState.SUCCEEDED:
            raise AppStatusError(self, f"job did not succeed: {self}")

    def to_json(self, filter_roles: list[str] | None = None) -> dict[str, Any]:
        """Return the status of the given roles (default: all) as a dict for ``json.dumps``."""
        return {
            "state": str(self.state),
            "num_restarts": self.num_restarts,
            "roles": [r.to_json() for r in self._select(filter_roles)],
            "msg": self.msg,
            "structured_error_msg": self.structured_error_msg,
            "url": self.ui_url,
        }

    def format(self, filter_roles: list[str] | None = None) -> str:
        """Return the status of the given roles (default: all) as human-readable text."""
        from torchx_specs.model.status_format import format_status

        return format_status(self, self._select(filter_roles))

    def __repr__(self) -> str:
        from torchx_specs.model.status_format import status_as_yaml

        return status_as_yaml(self)

    def _select(self, filter_roles: list[str] | None) -> list[RoleStatus]:
        if not filter_roles:
            return self.roles
        return [r for r in self.roles if r.role in filter_roles]
