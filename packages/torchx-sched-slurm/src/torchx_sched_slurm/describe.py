"""What is known of a job: from its own record, the queue and accounting, put together."""

from __future__ import annotations

import os

from torchx_sched_slurm import states
from torchx_sched_slurm.queries import Job, nodes_of
from torchx_sched_slurm.records import Entry, Record, ReplicaRecord, RoleRecord, record_of
from torchx_specs.model.app import Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse

#: The job has begun to end; how is to be seen.
_ENDING = ("COMPLETING", "STAGE_OUT")


def entry_of(app_id: str, job: Job) -> Entry | None:
    """Returns an entry for a job that the index does not have, from what it has left itself."""
    lead = job[0]
    for mark in (lead.mark, lead.number):
        path = record_of(lead.folder, mark) if mark and lead.folder else ""
        if path and os.path.isdir(path):
            roles = Record(path).roles()
            return Entry(app_id, mark, lead.name, lead.folder, path, roles=roles)
    return None


def app_state(entry: Entry | None, job: Job | None) -> tuple[AppState, str]:
    """Returns a job's state, and why it is in it.

    Args:
        entry: its entry, None if it is not in the index
        job: what the queue or accounting say, None if they have forgotten it
    """
    own, own_reason = _state_of_record(entry) if entry else (None, "")
    if job is not None:
        state, reason = _state_of(job)
        if state is None:  # ending: the job may have said how
            if own is None or not is_terminal(own):
                return AppState.RUNNING, "ending"
            return own, own_reason
        if own == AppState.SUCCEEDED and is_terminal(state):
            return own, ""
        if state in (AppState.FAILED, AppState.CANCELLED):
            return state, reason or (own_reason if own in (AppState.FAILED, state) else "")
        return state, reason
    if entry is None:
        return AppState.UNKNOWN, ""
    if own is not None and (own == AppState.SUCCEEDED or not entry.state):
        return own, own_reason
    if entry.state:
        state, reason = _by_name(entry.state)
        return state, reason or own_reason
    return _state_of_lost(entry)


def _by_name(name: str) -> tuple[AppState, str]:
    text = states.FAILURES.get(name, "")
    return states.appstate_from_slurm_state(name), f"{name}: {text}" if text else ""


def _state_of(job: Job) -> tuple[AppState | None, str]:
    """Returns what the lead component says: its script is the job. None if that is to be seen."""
    lead = job[0]
    if lead.state in _ENDING:
        return None, ""
    state, text = _by_name(lead.state)
    if state == AppState.PENDING:
        return state, states.explain_pending(lead.reason, lead.start)
    if lead.state == "FAILED":
        others = [part for part in job[1:] if part.state in ("NODE_FAIL", "OUT_OF_MEMORY")]
        return state, _by_name(others[0].state)[1] if others else ""
    return state, text


def _state_of_record(entry: Entry) -> tuple[AppState | None, str]:
    """Returns what the job has said of its end, None if it has said nothing."""
    record = Record(entry.record)
    outcome = record.outcome()
    if outcome is None:
        return None, ""
    if outcome.state == "REQUEUED":
        return AppState.PENDING, f"requeued: attempt {outcome.attempt + 1} has failed"
    if outcome.state == "SUCCEEDED":
        return AppState.SUCCEEDED, ""
    if cause := record.cause():
        return _by_name(cause)
    ending = record.ending()
    if ending and ending.get("JobState") != "RUNNING":
        name = states.base_state(ending.get("JobState", ""))
        if ending.get("Reason") == "TimeLimit":
            name = "TIMEOUT"
        if name in states.FAILURES:
            return _by_name(name)
        return _by_name("CANCELLED")  # told to end, and nobody says why
    first = record.first_failure()
    if first is None:
        return AppState.FAILED, f"exit code {outcome.exit_code}"
    role, k, node, code = first
    name = entry.roles[role].name if role < len(entry.roles) else str(role)
    return AppState.FAILED, f"{name}/{k} on {node} {_exit_text(code)}"


def _state_of_lost(entry: Entry) -> tuple[AppState, str]:
    """Returns the state of a job that is in no queue and has said nothing of its end."""
    if entry.cancelled:
        return AppState.CANCELLED, "cancelled"
    if Record(entry.record).attempt() is None:
        return AppState.CANCELLED, "it has left the queue and was never started"
    return (
        AppState.FAILED,
        "it has left the queue and told of no end: killed, or its first node failed",
    )


def _exit_text(code: int) -> str:
    return f"was killed by signal {code - 128}" if 128 < code < 193 else f"exited with {code}"


def process_exit_code(code: int | None) -> int | None:
    """Returns an exit code as ``ReplicaStatus`` has it: negative for a signal."""
    return 128 - code if code is not None and 128 < code < 193 else code


def describe(
    app_id: str, entry: Entry | None, job: Job | None, trouble: str = ""
) -> DescribeAppResponse:
    """Returns what is known of a job.

    Args:
        app_id: its id
        entry: its entry, None if it is not in the index
        job: what the queue or accounting say, None if they have forgotten it
        trouble: why Slurm could not be asked
    """
    state, reason = app_state(entry, job)
    if entry is not None and entry.roles:
        record = Record(entry.record)
        nodes = [node for part in job or () for node in nodes_of(part.nodes)]
        statuses = _roles(entry.roles, record, state, reason, nodes)
        restarts = record.attempt() or 0
    else:
        statuses = _roles_by_name(job or (), reason)
        restarts = -1
    errors = (r.structured_error_msg for status in statuses for r in status.replicas)
    return DescribeAppResponse(
        app_id=app_id,
        state=state,
        num_restarts=restarts,
        msg="; ".join(filter(None, (reason, trouble))) or (job[0].state if job else NONE),
        structured_error_msg=next((error for error in errors if error != NONE), NONE),
        roles_statuses=statuses,
        roles=[Role(s.role, image="", num_replicas=len(s.replicas)) for s in statuses],
    )


def _roles(
    roles: list[RoleRecord], record: Record, state: AppState, reason: str, nodes: list[str]
) -> list[RoleStatus]:
    statuses = []
    rank = 0
    for number, role in enumerate(roles):
        replicas = []
        for k in range(role.replicas):
            # of a job that waits, only an earlier attempt can have said anything
            found = record.replica(number, k) if state != AppState.PENDING else None
            status = _replica(role.name, k, found, state, reason)
            if not status.hostname and rank < len(nodes):
                status.hostname = status.hostaddr = status.node = nodes[rank]
            if status.state == AppState.FAILED:
                status.structured_error_msg = record.error(number, k) or NONE
            replicas.append(status)
            rank += 1
        statuses.append(RoleStatus(role.name, replicas))
    return statuses


def _replica(
    role: str, k: int, found: ReplicaRecord | None, app: AppState, reason: str
) -> ReplicaStatus:
    if found is None:
        # not started yet, or its file has not come through
        waits = AppState.PENDING if app == AppState.RUNNING else app
        return ReplicaStatus(k, waits, role, "", reason=reason)
    why = ""
    state: AppState = app
    if found.exit_code is None:
        why = reason if is_terminal(app) else ""
    elif found.exit_code == 0:
        state = AppState.SUCCEEDED
    else:
        state = AppState.CANCELLED if app == AppState.CANCELLED else AppState.FAILED
        why = _exit_text(found.exit_code)
        if found.exit_code > 128 and reason:
            why = f"{why} ({reason})"
    return ReplicaStatus(
        k,
        state,
        role,
        found.node,
        reason=why,
        exit_code=process_exit_code(found.exit_code),
        node=found.node,
        restarts=found.restarts,
    )


def _roles_by_name(job: Job, reason: str) -> list[RoleStatus]:
    """Returns the replicas of a job of upstream's: a component for each, named ``role-k``."""
    roles: dict[str, list[ReplicaStatus]] = {}
    for part in job:
        role, dash, k = part.name.rpartition("-")
        if not dash or not k.isdigit():
            continue
        state = states.appstate_from_slurm_state(part.state)
        node = (nodes_of(part.nodes) or [""])[0]
        status = ReplicaStatus(int(k), state, role, node, reason=reason, node=node or None)
        code, _, signal = part.exit_code.partition(":")
        if is_terminal(state) and code.isdigit() and signal.isdigit():
            status.exit_code = -int(signal) if int(signal) else int(code)
        roles.setdefault(role, []).append(status)
    return [RoleStatus(role, sorted(them, key=lambda r: r.id)) for role, them in roles.items()]
