"""What Slurm's states and reasons mean."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_specs.model.status import AppState

#: Slurm's states and ours. What is missing (``COMPLETING`` ...) depends on more than its name.
SLURM_STATES: Mapping[str, AppState] = {
    "BOOT_FAIL": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "CONFIGURING": AppState.PENDING,
    "DEADLINE": AppState.FAILED,
    "FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PENDING": AppState.PENDING,
    "PREEMPTED": AppState.FAILED,
    "RUNNING": AppState.RUNNING,
    "REQUEUED": AppState.PENDING,
    "REQUEUE_FED": AppState.PENDING,
    "REQUEUE_HOLD": AppState.PENDING,
    "RESIZING": AppState.PENDING,
    "RESV_DEL_HOLD": AppState.PENDING,
    "REVOKED": AppState.FAILED,
    "SIGNALING": AppState.RUNNING,
    "SPECIAL_EXIT": AppState.PENDING,
    "STAGE_OUT": AppState.RUNNING,
    "STOPPED": AppState.PENDING,
    "SUSPENDED": AppState.PENDING,
    "TIMEOUT": AppState.FAILED,
}

#: What a state that is a failure says to people.
FAILURES: Mapping[str, str] = {
    "BOOT_FAIL": "a node did not boot",
    "CANCELLED": "cancelled",
    "DEADLINE": "it could not end before its deadline",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "out of memory: ask for more (memMB of the role's resource)",
    "PREEMPTED": "preempted by another job",
    "REVOKED": "another cluster of the federation runs it",
    "TIMEOUT": "time limit reached (option time)",
}

_PENDING: Mapping[str, str] = {
    "AssocGrpCpuLimit": "the account's jobs use all the CPUs it may have",
    "AssocMaxJobsLimit": "the account has as many jobs as it may have",
    "BadConstraints": "no node has what is asked for",
    "BeginTime": "its start time has not come",
    "Dependency": "it waits for other jobs",
    "DependencyNeverSatisfied": "a job it waits for did not end as asked: it never starts",
    "InvalidAccount": "the account is not valid here",
    "InvalidQOS": "the quality of service is not valid here",
    "JobHeldAdmin": "held by an administrator",
    "JobHeldUser": "held: scontrol release starts it",
    "Licenses": "it waits for licences",
    "NodeDown": "a node it needs is down",
    "PartitionConfig": "the partition can't run it as it is: fewer nodes than replicas, or another"
    " limit of the partition (see options partition, replicas_per_node)",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than the partition has (see options partition,"
    " replicas_per_node)",
    "PartitionTimeLimit": "its time limit is longer than the partition's",
    "Priority": "other jobs come first",
    "QOSMaxJobsPerUserLimit": "you have as many jobs as the quality of service allows",
    "ReqNodeNotAvail": "a node it needs is not available",
    "Reservation": "it waits for its reservation",
    "Resources": "it waits for resources",
}


def appstate_from_slurm_state(slurm_state: str) -> AppState:
    """Returns our state for one of Slurm's, UNKNOWN if there is none.

    >>> appstate_from_slurm_state("NODE_FAIL")
    FAILED (5)
    """
    return SLURM_STATES.get(slurm_state, AppState.UNKNOWN)


def get_appstate_from_job(job: Mapping[str, object]) -> AppState:
    """Returns the state of a job in squeue's JSON, whose ``job_state`` is a text or a list."""
    state = job.get("job_state")
    if isinstance(state, (list, tuple)):
        state = state[0] if state else ""
    return appstate_from_slurm_state(str(state or ""))


def base_state(text: str) -> str:
    """Returns the state's name in what squeue or sacct print.

    >>> base_state("CANCELLED by 1000"), base_state("TIMEOUT+")
    ('CANCELLED', 'TIMEOUT')
    """
    return (text.split() or [""])[0].rstrip("+")


def explain_pending(reason: str, start: str = "") -> str:
    """Returns why a job waits, in Slurm's word and ours, and when it may start."""
    reason = reason.strip("() ") or "None"
    name = reason.partition(",")[0].strip()
    text = "waiting" if reason == "None" else reason
    if name in _PENDING:
        text = f"{reason}: {_PENDING[name]}"
    if start and start not in ("N/A", "NONE", "None", "Unknown"):
        text += f"; expected to start at {start}"
    return text
