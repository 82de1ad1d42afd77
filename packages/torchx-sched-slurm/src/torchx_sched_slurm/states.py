"""Map Slurm's job states to AppState, and states and reasons to explanations."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_specs.model.status import AppState

#: AppState for each of Slurm's states. ``COMPLETING`` and others are missing, because they do not
#: show how the job ends.
SLURM_STATES: Mapping[str, AppState] = {
    "BOOT_FAIL": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "CONFIGURING": AppState.PENDING,
    "DEADLINE": AppState.FAILED,
    "EXPEDITING": AppState.PENDING,
    "FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PENDING": AppState.PENDING,
    "POWER_UP_NODE": AppState.PENDING,
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

#: Explanations of Slurm's states for jobs that did not succeed.
FAILURES: Mapping[str, str] = {
    "BOOT_FAIL": "a node did not boot",
    "CANCELLED": "cancelled",
    "DEADLINE": "the job could not end before its deadline",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "out of memory; request more (memMB of the role's resource)",
    "PREEMPTED": "preempted by another job",
    "REVOKED": "another cluster of the federation runs the job",
    "TIMEOUT": "time limit reached (option time)",
}

_PENDING: Mapping[str, str] = {
    "AssocGrpCpuLimit": "the account's jobs use all CPUs that it may have",
    "AssocMaxJobsLimit": "the account has as many jobs as it may have",
    "BadConstraints": "no node has the requested features",
    "BeginTime": "the start time is in the future",
    "Dependency": "the job waits for other jobs",
    "DependencyNeverSatisfied": "a job that this job waits for did not end as required,"
    " so this job never starts",
    "InvalidAccount": "the account is not valid here",
    "InvalidQOS": "the quality of service is not valid here",
    "JobHeldAdmin": "held by an administrator",
    "JobHeldUser": "held by its user; scontrol release starts it",
    "Licenses": "the job waits for licences",
    "NodeDown": "a required node is down",
    "PartitionConfig": "the job exceeds a limit of the partition, for example its number of nodes;"
    " use another partition, or a larger replicas_per_node",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "the job requests more nodes than the partition has; use another"
    " partition, or a larger replicas_per_node",
    "PartitionTimeLimit": "the job's time limit is longer than the partition's",
    "Priority": "other jobs come first",
    "QOSMaxJobsPerUserLimit": "you have as many jobs as the quality of service allows",
    "ReqNodeNotAvail": "a required node is not available",
    "Reservation": "the job waits for its reservation",
    "Resources": "the job waits for resources",
}


def appstate_from_slurm_state(slurm_state: str) -> AppState:
    """Return the AppState for a state of Slurm; UNKNOWN if there is none.

    >>> appstate_from_slurm_state("NODE_FAIL")
    FAILED (5)
    """
    return SLURM_STATES.get(slurm_state, AppState.UNKNOWN)


def get_appstate_from_job(job: Mapping[str, object]) -> AppState:
    """Return the AppState of a job in squeue's JSON; ``job_state`` is a string or a list."""
    state = job.get("job_state")
    if isinstance(state, (list, tuple)):
        state = state[0] if state else ""
    return appstate_from_slurm_state(str(state or ""))


def base_state(text: str) -> str:
    """Return the name of the state, without additions, from a column of squeue or sacct.

    >>> base_state("CANCELLED by 1000"), base_state("TIMEOUT+")
    ('CANCELLED', 'TIMEOUT')
    """
    return (text.split() or [""])[0].rstrip("+")


def explain_pending(reason: str, start: str = "") -> str:
    """Return why a job is pending, and when Slurm expects it to start.

    Args:
        reason: Slurm's reason.
        start: The expected start time, if Slurm knows it.
    """
    reason = reason.strip("() ") or "None"
    name = reason.partition(",")[0].strip()
    text = "pending" if reason == "None" else reason
    if name in _PENDING:
        text = f"{reason}: {_PENDING[name]}"
    if start and start not in ("N/A", "NONE", "None", "Unknown"):
        text += f"; expected to start at {start}"
    return text
