"""States of an app and of its replicas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import TorchXError
from torchx_specs.model.constants import NONE

if TYPE_CHECKING:
    from datetime import datetime


_NO_VALUE = "<N/A>"
_NEWER = ("submitted", "started", "ended", "attempts")
_INDENT = "\n" + " " * 15
# A line breaks at the first blank after 80 characters; the next line begins with that blank.
_LINE = r"(?s).{80}[^ ]*|.+"
# torch's RPC wraps the error of a worker in a text. The first line of this text matches the first
# pattern and ends with "):"; the last line ends with "')".
_RPC_HEAD = r"\b\w+\('On WorkerInfo\("
_RPC_END = r"(?m)^.*'\)"


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


def given(text: str | None) -> str | None:
    """Return a text of a status; None if it is missing, for which older readers see ``<NONE>``."""
    return None if text == NONE else text or None


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

    @property
    def error(self) -> str | None:
        """The error of the replica, which may be JSON; None if there is none."""
        return given(self.structured_error_msg)


def _rfc3339(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None


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
        replicas = [
            {
                **asdict(r),
                "state_name": r.state.name,
                "started": _rfc3339(r.started),
                "ended": _rfc3339(r.ended),
            }
            for r in self.replicas
        ]
        return {"role": self.role, "replicas": replicas}


@dataclass(frozen=True)
class AttemptStatus:
    """One attempt of an app with the option ``requeue``; the times have a time zone.

    Args:
        number: The number of the attempt, 0 for the first one.
        started: When the attempt started; None if unknown.
        ended: When the attempt ended; None while it runs.
        reason: Why the attempt ended: ``preempted``, ``time-limit``, ``node-failure``,
            ``out-of-memory``, ``failed``, ``requested``, ``succeeded`` or ``cancelled``; None while
            it runs.
        resume_step: The newest committed step when the attempt began; None if there was none.
        committed_step: The newest committed step when the attempt ended, or now while it runs; None
            if there is none.
        nodes: Names of the machines on which its replicas ran, sorted; empty if unknown.
    """

    number: int
    started: datetime | None = None
    ended: datetime | None = None
    reason: str | None = None
    resume_step: int | None = None
    committed_step: int | None = None
    nodes: tuple[str, ...] = ()


@dataclass
class AppStatus:
    """Status of an app; ``roles`` has only the replicas of the most recent attempt.

    The times have a time zone, and are None if unknown. ``attempts`` has all attempts of an app
    with the option ``requeue``, and is empty for other apps.
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
    attempts: list[AttemptStatus] = field(default_factory=list)

    @property
    def message(self) -> str | None:
        """The scheduler's message; None if there is none."""
        return given(self.msg)

    @property
    def restarts(self) -> int | None:
        """How many times the app was restarted; None if unknown."""
        return None if self.num_restarts < 0 else self.num_restarts

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
        return format_status(self, self._select(filter_roles))

    def __repr__(self) -> str:
        return status_as_yaml(self)

    def _select(self, filter_roles: list[str] | None) -> list[RoleStatus]:
        if not filter_roles:
            return self.roles
        return [r for r in self.roles if r.role in filter_roles]


class AppStatusError(TorchXError):
    """The job did not succeed; ``status`` is the job's status."""

    exit_code = 1

    def __init__(self, status: AppStatus, *args: object) -> None:
        super().__init__(*args)
        self.status = status


# -- the text of a status


def format_status(status: AppStatus, roles: Iterable[RoleStatus]) -> str:
    """Return the text of :meth:`AppStatus.format`."""
    replicas = "".join(
        format_replica(replica)
        for role in roles
        for replica in sorted(role.replicas, key=lambda replica: replica.id)
    )
    return (
        f"AppStatus:\n    State: {status.state}\n    Num Restarts: {status.num_restarts}"
        f"\n    Roles: {replicas}\n    Msg: {status.msg}"
        f"\n    Structured Error Msg: {status.structured_error_msg}"
        f"\n    UI URL: {status.ui_url}\n    "
    )


def format_replica(replica: ReplicaStatus) -> str:
    """Return the text of one replica, in which a newline precedes each line."""
    error, exit_code, timestamp = error_of(replica)
    recognized = error != replica.structured_error_msg
    mark = "*" if replica.id == 0 else " "
    head = f"\n {mark}{replica.role}[{replica.id}]:{replica.state.name}"
    facts = {
        "exitcode": exit_code,
        "reason": replica.reason if replica.reason != f"exit code {exit_code}" else None,
        "node": replica.node if replica.node != replica.hostname else None,
        "restarts": replica.restarts or None,
    }
    notes = [f"{name}: {fact}" for name, fact in facts.items() if fact not in (None, "")]
    if notes:
        head += f" ({', '.join(notes)})"
    if error is None:
        if not notes and replica.state.name in ("FAILED", "CANCELLED"):
            head += " (no reply file)"
        return head
    return (
        f"{head}\n        timestamp: {timestamp}\n        hostname: {replica.hostname}"
        f"\n        error_msg: {_INDENT.join(re.findall(_LINE, error)) if recognized else error}"
    )


def error_of(replica: ReplicaStatus) -> tuple[str | None, object, str]:
    """Return message (None if there is no error), exit code and local time of a replica's error."""
    payload = replica.error
    if payload is None:
        return None, replica.exit_code, _NO_VALUE
    import json  # imported here, so that start-up does not load it

    try:
        data: Any = json.loads(payload)
    except (ValueError, RecursionError):
        data = None
    message = data.get("message") if isinstance(data, dict) else None
    inner = message if isinstance(message, dict) else data
    if not isinstance(inner, dict) or not isinstance(inner.get("message"), str):
        return payload, replica.exit_code, _NO_VALUE
    extra = inner.get("extraInfo")
    timestamp = extra.get("timestamp") if isinstance(extra, dict) else inner.get("timestamp")
    exit_code = inner.get("errorCode", replica.exit_code)
    message = _trim(str(inner.get("message", _NO_VALUE)))
    return message, _NO_VALUE if exit_code is None else exit_code, _local_time(timestamp)


def _local_time(timestamp: object) -> str:
    import datetime

    try:
        return str(datetime.datetime.fromtimestamp(int(str(timestamp))))
    except (ValueError, OverflowError, OSError):
        return _NO_VALUE


def _trim(message: str) -> str:
    """Remove the RPC wrapper; if a later line begins with "Exception", keep only the line before.

    The message may be long and hostile, so the time must be linear in its length.
    """
    lines = message.split("\n")
    for i, line in enumerate(lines):
        head = re.search(_RPC_HEAD, line) if line.endswith("):") else None
        if head:
            rest = "\n".join(lines[i + 1 :])
            end = re.search(_RPC_END, rest)
            if end:
                message = f"{line[head.start() :]}\n{rest[: end.end()]}"
            break
    before, exception, _ = message.partition("\nException")
    return before.rpartition("\n")[2] if exception else message


def status_as_yaml(status: AppStatus) -> str:
    """Return ``repr(AppStatus)`` as YAML; without PyYAML, as JSON, which is also valid YAML."""
    import json

    from torchx_specs.formats.documents import YamlMissingError, dump_yaml

    # Without these fields, the text has the keys of older releases.
    data = asdict(
        status,
        dict_factory=lambda fields: {
            k: repr(v) if k == "state" else v for k, v in fields if k not in _NEWER
        },
    )
    try:
        data["structured_error_msg"] = json.loads(data["structured_error_msg"])
    except (ValueError, RecursionError):
        pass
    try:
        return dump_yaml({"AppStatus": dict(sorted(data.items()))})
    except YamlMissingError:
        return json.dumps({"AppStatus": data}, indent=2)
