"""States of an app and of its replicas."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from torchx_specs.errors import AppStatusError
from torchx_specs.model.constants import NONE


class AppState(int, Enum):
    """State of an application, ordered from not submitted to ended.

    An app starts at UNSUBMITTED and moves through SUBMITTED, PENDING and RUNNING to one of the
    terminal states SUCCEEDED, FAILED and CANCELLED. A preempted app goes back from RUNNING to
    PENDING.

    1. UNSUBMITTED - not yet submitted to the scheduler
    2. SUBMITTED - accepted by the scheduler
    3. PENDING - waiting for resources
    4. RUNNING - at least one replica runs
    5. SUCCEEDED - completed successfully
    6. FAILED - completed unsuccessfully
    7. CANCELLED - ended by a user before it completed
    8. UNKNOWN - the scheduler cannot tell
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

_TERMINAL_STATES = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})
_STARTED_STATES = _TERMINAL_STATES | {AppState.RUNNING}


def is_terminal(state: AppState) -> bool:
    """Returns True for SUCCEEDED, FAILED and CANCELLED."""
    return state in _TERMINAL_STATES


def is_started(state: AppState) -> bool:
    """Returns True for RUNNING and the terminal states."""
    return state in _STARTED_STATES


@dataclass
class ReplicaStatus:
    """Status of one replica of a role.

    Args:
        id: index of the replica within its role
        state: its state
        role: name of the role
        hostname: name of the host it runs on, as the other replicas reach it
        structured_error_msg: JSON of the error the replica left, or ``<NONE>``
        hostaddr: address of the host, the host name unless known
        reason: why it is in this state (``OOMKilled``, ``Unschedulable: ...``), empty if there is
            nothing to say
        exit_code: exit code of its process, negative for a signal, None while unknown
        node: the scheduler's name of the machine, None while unknown
        restarts: how often it was started again
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

    def __post_init__(self) -> None:
        if self.hostaddr is None:
            self.hostaddr = self.hostname


@dataclass
class RoleStatus:
    """Status of the replicas of one role."""

    role: str
    replicas: list[ReplicaStatus]

    def to_json(self) -> dict[str, Any]:
        """Returns the status as a dict that ``json.dumps`` takes.

        A replica's ``state`` is the number of the state, as scripts have it; ``state_name`` beside
        it is its name.
        """
        replicas = [{**asdict(r), "state_name": r.state.name} for r in self.replicas]
        return {"role": self.role, "replicas": replicas}


@dataclass
class AppStatus:
    """Runtime status of an app; ``roles`` has the replicas of the most recent attempt only."""

    state: AppState
    num_restarts: int = 0
    msg: str = ""
    structured_error_msg: str = NONE
    ui_url: str | None = None
    roles: list[RoleStatus] = field(default_factory=list)

    def is_terminal(self) -> bool:
        """Returns True if the app has ended."""
        return is_terminal(self.state)

    def raise_for_status(self) -> None:
        """Raises if the app did not succeed (a running app has not).

        Raises:
            AppStatusError: its ``status`` is this object
        """
        if self.state != AppState.SUCCEEDED:
            raise AppStatusError(self, f"job did not succeed: {self}")

    def to_json(self, filter_roles: list[str] | None = None) -> dict[str, Any]:
        """Returns the status as a dict that ``json.dumps`` takes.

        Args:
            filter_roles: the roles to include, all if None
        """
        return {
            "state": str(self.state),
            "num_restarts": self.num_restarts,
            "roles": [r.to_json() for r in self._select(filter_roles)],
            "msg": self.msg,
            "structured_error_msg": self.structured_error_msg,
            "url": self.ui_url,
        }

    def format(self, filter_roles: list[str] | None = None) -> str:
        """Returns the status for people to read.

        Args:
            filter_roles: the roles to include, all if None
        """
        from torchx_specs.model.status_format import format_status

        return format_status(self, self._select(filter_roles))

    def __repr__(self) -> str:
        from torchx_specs.model.status_format import status_as_yaml

        return status_as_yaml(self)

    def _select(self, filter_roles: list[str] | None) -> list[RoleStatus]:
        if not filter_roles:
            return self.roles
        return [r for r in self.roles if r.role in filter_roles]
