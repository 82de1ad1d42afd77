"""The status of an app as data, and as text: a summary, times, and the replicas in groups."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from torchx_cli.output.printing import (
    counted,
    format_duration,
    format_time,
    handle_data,
    rfc3339,
    state_name,
)
from torchx_kit.signals import describe_exit, exit_signal, signal_name
from torchx_specs.errors import one_line
from torchx_specs.model.status import (
    AppState,
    AppStatus,
    AttemptStatus,
    ReplicaStatus,
    RoleStatus,
    error_of,
    format_replica,
)
from torchx_specs.redaction import masked_text

_LONGEST_CAUSE = 300
# A pending reason of the cluster is long, and its explanation follows it.
_LONGEST_REASON = 600
_LONGEST_ITEMS = 60
# The signals by which a scheduler ends replicas, as it does after another replica has failed.
_SENT_BY_SCHEDULERS = ("SIGTERM", "SIGKILL")
# The order in which the groups of a role's replicas are shown, by state.
_ORDER = ("FAILED", "UNKNOWN", "CANCELLED", "PENDING", "SUBMITTED", "RUNNING", "SUCCEEDED")


class Failure(NamedTuple):
    """The replica that failed first.

    Attributes:
        replica: Status of the replica.
        message: The message of the replica's error file, or of the app's error, or an empty string.
        exit_code: The exit code of the replica, negative for a signal; None if unknown.
    """

    replica: ReplicaStatus
    message: str
    exit_code: int | None


def status_text(
    app_handle: str,
    status: AppStatus,
    roles: Sequence[str] = (),
    *,
    all_replicas: bool = False,
    now: datetime | None = None,
    error: str = "",
) -> str:
    """Return the status of an app as text, with secrets masked.

    Args:
        app_handle: The app.
        status: The status of the app.
        roles: The roles to include; an empty sequence means all.
        all_replicas: Whether each replica has a line, instead of each group of replicas.
        now: The reference for durations; None means the present.
        error: The line in which the program of the first failed replica names its error.
    """
    now = now or datetime.now(timezone.utc)
    lines = [summary(status, now)]
    fields = {
        "Error": error,
        "App": app_handle,
        "State": state_name(status.state),
        "Submitted": _time(status.submitted, now),
        "Started": _time(status.started, now),
        "Ended": _time(status.ended, now),
        "Num Restarts": None if status.restarts is None else str(status.restarts),
        "Msg": _message(status),
        "UI URL": one_line(status.ui_url) if status.ui_url else None,
    }
    lines += [f"    {name}: {value}" for name, value in fields.items() if value]
    lines += [_attempt_line(attempt, now) for attempt in status.attempts]
    failure = first_failure(status)
    for role in status.roles:
        if not roles or role.role in roles:
            lines += _role_lines(role, all_replicas, now, failure and failure.replica)
    return masked_text("\n".join(lines) + "\n")


def summary(status: AppStatus, now: datetime | None = None) -> str:
    """Return one line with the state, the duration, and the result of :func:`detail`, masked.

    >>> from torchx_specs.model.status import AppState, AppStatus, ReplicaStatus, RoleStatus
    >>> trainer = ReplicaStatus(7, AppState.FAILED, "trainer", "h", exit_code=1, node="n9")
    >>> summary(AppStatus(AppState.FAILED, roles=[RoleStatus("trainer", [trainer])]))
    'FAILED: trainer/7 on n9: exit code 1'
    """
    now = now or datetime.now(timezone.utc)
    text = state_name(status.state)
    duration = _duration(status, now)
    if duration:
        text += f" {duration}"
    reason = detail(status)
    return masked_text(f"{text}: {reason}") if reason else text


def _duration(status: AppStatus, now: datetime) -> str:
    if status.is_terminal():
        if status.started is None or status.ended is None:
            return ""
        return f"after {format_duration((status.ended - status.started).total_seconds())}"
    begin = status.started if status.state == AppState.RUNNING else status.submitted
    return "" if begin is None else f"for {format_duration((now - begin).total_seconds())}"


def detail(status: AppStatus) -> str:
    """Return what is known about the state of an app, or an empty string.

    This is the first failure, the pending reason, how many replicas run, or the scheduler's
    message.
    """
    if status.state == AppState.FAILED:
        failure = first_failure(status)
        if failure is None:
            return _message(status)
        replica = failure.replica
        where = f" on {one_line(replica.node)}" if replica.node else ""
        cause = _cause(failure) or _message(status)
        return f"{one_line(replica.role)}/{replica.id}{where}" + (f": {cause}" if cause else "")
    if status.state in (AppState.PENDING, AppState.SUBMITTED):
        reason = pending_reason(status)
        return "" if reason.upper() == state_name(status.state) else reason
    if status.state == AppState.RUNNING:
        replicas = [replica for role in status.roles for replica in role.replicas]
        running = sum(replica.state == AppState.RUNNING for replica in replicas)
        done = sum(replica.state == AppState.SUCCEEDED for replica in replicas)
        text = (
            f"{running} of {counted(len(replicas), 'replica')} running"
            if running < len(replicas)
            else ""
        )
        text += f", {done} succeeded" if done else ""
        failure = first_failure(status)
        if failure is not None:
            cause = _cause(failure)
            name = f"{one_line(failure.replica.role)}/{failure.replica.id}"
            text += f"; {name} failed" + (f": {cause}" if cause else "")
        return text
    if status.state in (AppState.CANCELLED, AppState.UNKNOWN):
        return _message(status)
    return ""


def pending_reason(status: AppStatus) -> str:
    """Return the most frequent reason of an app's waiting replicas, or the scheduler's message.

    The result is an empty string if the scheduler gives neither.
    """
    reasons = [
        one_line(replica.reason)
        for role in status.roles
        for replica in role.replicas
        if replica.reason and replica.state in (AppState.PENDING, AppState.SUBMITTED)
    ]
    if reasons:
        return Counter(reasons).most_common(1)[0][0][:_LONGEST_REASON]
    return _message(status)


def first_failure(status: AppStatus) -> Failure | None:
    """Return the replica that failed first, or None if no replica failed.

    The replica with the oldest error file failed first. If no replica has an error file, the result
    is the replica that the scheduler's message names, or else the replica that ended first.
    Replicas that SIGTERM or SIGKILL ended come after the others, because schedulers send these
    signals after a failure. Without an error file, the message is the error of the app.
    """
    failed = [r for role in status.roles for r in role.replicas if r.state == AppState.FAILED]
    if not failed:
        return None

    def order(replica: ReplicaStatus) -> tuple[Any, ...]:
        message, _, when = error_of(replica)
        is_named = re.match(rf"{re.escape(replica.role)}/{replica.id}\b", status.msg)
        return (
            message is None,
            when,
            is_named is None,
            signal_name(exit_signal(_end_of(replica).exit_code or 0)) in _SENT_BY_SCHEDULERS,
            math.inf if replica.ended is None else replica.ended.timestamp(),
        )

    first = _end_of(min(failed, key=order))
    if first.message:
        return first
    of_app = ReplicaStatus(
        0, status.state, "", "", structured_error_msg=status.structured_error_msg
    )
    return first._replace(message=one_line(error_of(of_app)[0] or ""))


def _end_of(replica: ReplicaStatus) -> Failure:
    """Return the message and the exit code of a replica; the error file may have both."""
    message, code, _ = error_of(replica)
    if replica.exit_code is not None:
        code = replica.exit_code
    return Failure(replica, one_line(message or ""), code if isinstance(code, int) else None)


def _cause(failure: Failure) -> str:
    """Return why a replica ended: exit code or signal, reason, and the message."""
    exit_text = describe_exit(failure.exit_code or 0)
    reason = one_line(failure.replica.reason)
    without_name = exit_text.partition(" (")[0]
    if re.search(rf"{without_name}(?!\d)", reason):
        exit_text = ""
    cause = ", ".join(filter(None, (exit_text, reason, failure.message)))
    if len(cause) <= _LONGEST_CAUSE:
        return cause
    return f"{cause[:_LONGEST_CAUSE]}... (shortened; --replicas shows more)"


def _run_time(start: datetime, end: datetime | None, is_running: bool, now: datetime) -> str:
    """Return when a replica or an attempt started, and how long it ran if that is known."""
    text = f"started {format_time(start)}"
    if is_running:
        return f"{text}, running for {format_duration((now - start).total_seconds())}"
    return (
        text if end is None else f"{text}, ran for {format_duration((end - start).total_seconds())}"
    )


def _role_lines(
    role: RoleStatus, all_replicas: bool, now: datetime, failed_first: ReplicaStatus | None
) -> list[str]:
    replicas = sorted(role.replicas, key=lambda replica: replica.id)
    lines = [_role_head(role.role, replicas)]
    if all_replicas:
        for replica in replicas:
            head, *more = format_replica(replica).splitlines()[1:]
            if replica.started is not None:
                is_running = replica.state == AppState.RUNNING
                head += f"; {_run_time(replica.started, replica.ended, is_running, now)}"
            lines += [head, *more]
        return lines
    groups: dict[tuple[str, str], list[ReplicaStatus]] = {}
    for replica in replicas:
        groups.setdefault((state_name(replica.state), _cause(_end_of(replica))), []).append(replica)
    if len(groups) == 1 and not next(iter(groups))[1]:
        return lines  # the head has the state of all replicas

    def order(item: tuple[tuple[str, str], list[ReplicaStatus]]) -> tuple[int, bool, int]:
        (state, _), members = item
        # The replica that failed first is the cause, however many others ended after it.
        is_cause = any(member is failed_first for member in members)
        return _rank(state), not is_cause, -len(members)

    for (state, cause), members in sorted(groups.items(), key=order):
        nodes = list(dict.fromkeys(member.node for member in members if member.node))
        where = f" on {one_line(nodes[0])}" if len(nodes) == 1 else ""
        text = f"    {state} {len(members)} ({_id_ranges(members)}){where}"
        lines.append(f"{text}: {cause}" if cause else text)
    return lines


def _role_head(name: str, replicas: Sequence[ReplicaStatus]) -> str:
    states = [state_name(replica.state) for replica in replicas]
    counts = ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states), key=_rank))
    restarts = sum(replica.restarts for replica in replicas)
    text = f"{one_line(name)}: {counted(len(replicas), 'replica')}"
    return text + (f": {counts}" if counts else "") + (f"; {restarts} restarts" if restarts else "")


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


def _id_ranges(replicas: Iterable[ReplicaStatus]) -> str:
    """Return the indices of replicas as ``torchx log`` takes them: ``0,2-4``."""
    ranges: list[list[int]] = []
    for replica in replicas:
        if ranges and replica.id == ranges[-1][1] + 1:
            ranges[-1][1] = replica.id
        else:
            ranges.append([replica.id, replica.id])
    return _shortened(",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges))


def _shortened(items: str) -> str:
    """Return a list, separated by commas; a long one is cut off, and ends with ``...``."""
    if len(items) <= _LONGEST_ITEMS:
        return items
    return items[:_LONGEST_ITEMS].rpartition(",")[0] + ",..."


def _attempt_line(attempt: AttemptStatus, now: datetime) -> str:
    """Return a line with the times of an attempt, why it ended, and its committed steps.

    As in logs and messages, the first attempt has the number 1.
    """
    facts = []
    if attempt.started is not None:
        facts = [_run_time(attempt.started, attempt.ended, attempt.ended is None, now)]
    if attempt.nodes:
        facts.append(f"on {_shortened(','.join(attempt.nodes))}")
    if attempt.reason:
        facts.append(attempt.reason)
    if attempt.resume_step is not None:
        facts.append(f"went on after step {attempt.resume_step}")
    if attempt.committed_step != attempt.resume_step:
        facts.append(f"committed step {attempt.committed_step}")
    return f"    Attempt {attempt.number + 1}: {', '.join(facts)}"


def _time(when: datetime | None, now: datetime) -> str | None:
    if when is None:
        return None
    return f"{format_time(when)} ({format_duration((now - when).total_seconds())} ago)"


def _message(status: AppStatus) -> str:
    """Return a scheduler's message as one line, or an empty string."""
    return one_line(status.message or "")[:_LONGEST_REASON]


# -- the status as data


def status_data(
    app_handle: str, status: AppStatus, roles: list[str] | None = None, error: str = ""
) -> dict[str, Any]:
    """Return the status of an app with the app's handle, id and URL, and the scheduler's name.

    ``summary`` is the first line that ``torchx status`` prints. ``first_failure`` describes the
    replica that failed first, with its error message; it is None without a failure.

    Args:
        app_handle: The app.
        status: The status of the app.
        roles: The roles to include; None or an empty list means all.
        error: The line in which the program of the first failed replica names its error.
    """
    return {
        **status.to_json(roles),
        **handle_data(app_handle),
        "ui_url": status.ui_url,
        "submitted": rfc3339(status.submitted),
        "started": rfc3339(status.started),
        "ended": rfc3339(status.ended),
        "attempts": [
            {
                **vars(attempt),
                "started": rfc3339(attempt.started),
                "ended": rfc3339(attempt.ended),
            }
            for attempt in status.attempts
        ],
        "summary": summary(status),
        "first_failure": _failure_data(status, error),
    }


def _failure_data(status: AppStatus, error: str) -> dict[str, Any] | None:
    failure = first_failure(status)
    if failure is None:
        return None
    replica = failure.replica
    return {
        "role": replica.role,
        "replica": replica.id,
        "node": replica.node,
        "exit_code": failure.exit_code,
        "reason": replica.reason or None,
        "message": failure.message or None,
        "error_line": error or None,
    }
