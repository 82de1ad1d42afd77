"""Descriptions of apps for schedulers that query the state of each replica.

The index of submitted jobs keeps the description of an ended app as JSON data, because the batch
system forgets ended jobs.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from torchx_kit.times import moment
from torchx_specs.model.app import Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import (
    AppState,
    AttemptStatus,
    ReplicaStatus,
    RoleStatus,
    is_terminal,
)
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse

_REPLICA_TIMES = ("started", "ended")
_APP_TIMES = ("submitted", *_REPLICA_TIMES)
# Exit codes of replicas that a scheduler ends after another replica has failed.
_ENDED_BY_OTHERS = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
_ORDER = (
    AppState.RUNNING,
    AppState.PENDING,
    AppState.FAILED,
    AppState.CANCELLED,
    AppState.UNKNOWN,
)


def combined_state(states: Iterable[AppState]) -> AppState:
    """Return the state of an app from the states of its replicas.

    An app runs as long as one of its replicas runs, even if another replica has failed. Without
    replicas, it has succeeded.

    >>> combined_state([AppState.FAILED, AppState.RUNNING]).name
    'RUNNING'
    """
    found = set(states)
    return next((state for state in _ORDER if state in found), AppState.SUCCEEDED)


def description(
    app_id: str, state: AppState, message: str, statuses: list[RoleStatus]
) -> DescribeAppResponse:
    """Return the description of an app.

    The error is the first error that a replica reported. The roles contain only their names and
    numbers of replicas. The number of restarts is 0, because only replicas are restarted.

    Args:
        app_id: The app's id.
        state: The app's state.
        message: A message for the user; ``<NONE>`` if there is none.
        statuses: The statuses of the roles.
    """
    errors = (replica.error for role in statuses for replica in role.replicas)
    return DescribeAppResponse(
        app_id=app_id,
        state=state,
        num_restarts=0,
        msg=message,
        structured_error_msg=next(filter(None, errors), NONE),
        roles_statuses=statuses,
        roles=[Role(s.role, image="", num_replicas=len(s.replicas)) for s in statuses],
    )


def set_times(
    app: DescribeAppResponse | ListAppResponse,
    submitted: datetime | None,
    replicas: Iterable[ReplicaStatus] = (),
    *,
    started: datetime | None = None,
    ended: datetime | None = None,
) -> None:
    """Set the times of an app, which starts with its first replica and ends with its last one.

    The clocks of machines differ. If the start precedes the submission, it is set to the time of
    the submission. If the end precedes the start, it is set to the start. An app that has not ended
    gets no end.

    Args:
        app: The app, with its state.
        submitted: When the app was submitted; None if unknown.
        replicas: The replicas, with their times.
        started: The start of the app, used if no replica has a start; None if unknown.
        ended: The end of the app, unless a replica ended later; None if unknown.
    """
    ends = [] if ended is None else [ended]
    if replicas := list(replicas):
        started = min((r.started for r in replicas if r.started is not None), default=started)
        ends += [r.ended for r in replicas if r.ended is not None]
    if started is not None and submitted is not None and started < submitted:
        started = submitted
    app.submitted, app.started, app.ended = submitted, started, None
    if ends and is_terminal(app.state):
        if earliest := started or submitted:
            ends.append(earliest)
        app.ended = max(ends)


def app_exit_code(state: AppState, replicas: Iterable[ReplicaStatus]) -> int | None:
    """Return the exit code of an app, or None if unknown.

    The exit code of an app that succeeded is 0. A failed app has the exit code of its first failed
    replica. A replica that SIGTERM or SIGKILL ended counts only if no other replica failed, because
    schedulers send these signals to the remaining replicas after a failure.

    Args:
        state: The state of the app.
        replicas: The replicas of the app.
    """
    if state == AppState.SUCCEEDED:
        return 0
    if state != AppState.FAILED:
        return None
    codes = [r.exit_code for r in replicas if r.state == AppState.FAILED and r.exit_code]
    return next((code for code in codes if code not in _ENDED_BY_OTHERS), next(iter(codes), None))


def listed(described: DescribeAppResponse, handle: str = "", name: str = "") -> ListAppResponse:
    """Convert the description of an app to an item of a list of apps.

    Args:
        described: The description, with its times.
        handle: The app's handle; if it is empty, the runner sets the handle.
        name: Name of the app.
    """
    replicas = [replica for role in described.roles_statuses for replica in role.replicas]
    app = ListAppResponse(described.app_id, described.state, name=name)
    if handle:
        app.app_handle = handle
    app.submitted, app.started = described.submitted, described.started
    app.ended, app.exit_code = described.ended, app_exit_code(described.state, replicas)
    return app


def to_dict(described: DescribeAppResponse) -> dict[str, Any]:
    """Return a description as JSON data, with times in seconds since 1970."""
    data = {
        "app_id": described.app_id,
        "state": described.state,
        "message": described.msg,
        "restarts": described.num_restarts,
        "roles": [asdict(role) for role in described.roles_statuses],
        "times": [getattr(described, name) for name in _APP_TIMES],
        "attempts": [vars(one) for one in described.attempts],
    }
    found: dict[str, Any] = json.loads(json.dumps(data, default=datetime.timestamp))
    return found


def from_dict(data: Mapping[str, Any]) -> DescribeAppResponse:
    """Convert the result of :func:`to_dict` back to the description.

    Raises:
        KeyError: A field is missing.
    """
    statuses = [
        RoleStatus(role["role"], [_replica_status(replica) for replica in role["replicas"]])
        for role in data["roles"]
    ]
    found = description(data["app_id"], AppState(data["state"]), data["message"], statuses)
    found.num_restarts = data["restarts"]
    for name, seconds in zip(_APP_TIMES, data["times"], strict=True):
        setattr(found, name, moment(seconds))
    found.attempts = [
        AttemptStatus(**{**one, **_times(one), "nodes": tuple(one["nodes"])})
        for one in data["attempts"]
    ]
    return found


def _replica_status(data: Mapping[str, Any]) -> ReplicaStatus:
    return ReplicaStatus(**{**data, **_times(data), "state": AppState(data["state"])})


def _times(data: Mapping[str, Any]) -> dict[str, datetime | None]:
    return {name: moment(data[name]) for name in _REPLICA_TIMES}
