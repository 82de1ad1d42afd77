"""Map Slurm's job states to AppState, and states and reasons to explanations."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_kit.batch.states import JobState, Phase
from torchx_kit.jobs.pending_reasons import LESS_OF_LIMIT, LIMIT, SMALLER
from torchx_specs.model.status import AppState

_HELD = "held after a requeue, until somebody runs scontrol release"

#: The states of Slurm's jobs. The states of a job that is ending do not show how it ends.
STATES = {
    "PENDING": JobState(Phase.WAITING),
    "REQUEUED": JobState(Phase.WAITING),
    "REQUEUE_FED": JobState(Phase.WAITING),
    "REQUEUE_HOLD": JobState(Phase.WAITING, _HELD),
    "RESV_DEL_HOLD": JobState(Phase.WAITING, "held because its reservation was deleted"),
    "SPECIAL_EXIT": JobState(Phase.WAITING, _HELD),
    "CONFIGURING": JobState(Phase.STOPPED, "its nodes are being prepared"),
    "EXPEDITING": JobState(Phase.STOPPED, "Slurm requeues it and starts it before other jobs"),
    "POWER_UP_NODE": JobState(Phase.STOPPED, "its nodes are being started"),
    "RESIZING": JobState(Phase.STOPPED, "its size is being changed"),
    "STOPPED": JobState(Phase.STOPPED, "stopped; it keeps its nodes"),
    "SUSPENDED": JobState(Phase.STOPPED, "suspended"),
    "RUNNING": JobState(Phase.RUNNING),
    "SIGNALING": JobState(Phase.RUNNING),
    "STAGE_OUT": JobState(Phase.RUNNING, "ending"),
    "COMPLETING": JobState(Phase.UNKNOWN, "ending"),
    "COMPLETED": JobState(Phase.SUCCEEDED),
    "BOOT_FAIL": JobState(Phase.FAILED, "a node did not boot"),
    "DEADLINE": JobState(Phase.FAILED, "the job could not end before its deadline"),
    "FAILED": JobState(Phase.FAILED),
    "NODE_FAIL": JobState(Phase.FAILED, "a node failed"),
    "OUT_OF_MEMORY": JobState(
        Phase.FAILED, "out of memory; request more (memMB of the role's resource)"
    ),
    "PREEMPTED": JobState(Phase.FAILED, "preempted by another job"),
    "REVOKED": JobState(Phase.FAILED, "another cluster of the federation runs the job"),
    "TIMEOUT": JobState(Phase.FAILED, "time limit reached (option time)"),
    "CANCELLED": JobState(Phase.CANCELLED, "cancelled"),
}

#: AppState for each of Slurm's states whose meaning is known.
SLURM_STATES: Mapping[str, AppState] = {
    name: state.phase.app_state
    for name, state in STATES.items()
    if state.phase is not Phase.UNKNOWN
}

#: Explanations of Slurm's states for jobs that did not succeed.
FAILURES: Mapping[str, str] = {
    name: state.meaning for name, state in STATES.items() if state.phase.has_ended and state.meaning
}

#: Explanations of the reasons in the section "Job reason codes" of the manual page of squeue.
REASONS = (
    (
        r"\b(JobHoldMaxRequeue|RequeueHold|SpecialExit)\b|requeued (in )?(held|special)",
        "Slurm holds the job after a requeue",
        "it waits until somebody runs scontrol release",
    ),
    (
        r"\bPartitionTimeLimit\b",
        "the job's time limit is above the partition's limit",
        "submit with a shorter time, or to another partition",
    ),
    (
        r"\bPartition(NodeLimit|Config)\b",
        "the job needs more nodes than the partition allows",
        "use fewer replicas, a larger replicas_per_node, or another partition",
    ),
    (
        r"\b(Partition(Down|Inactive)|NodeDown|FrontEndDown)\b",
        "the partition or its nodes take no jobs now",
        "use another partition, or ask the administrators",
    ),
    (
        r"\bReqNodeNotAvail\b",
        "the requested nodes are reserved, down or in use",
        "wait for the end of a reservation, or request other nodes",
    ),
    (
        r"\bBadConstraints\b",
        "no node can ever run the job as it was requested",
        "remove the constraint, or use another partition",
    ),
    (
        r"\b(InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed)\b",
        "the account or quality of service may not use this partition",
        "set the options account and qos, or ask the administrators",
    ),
    (
        r"\b(QOS|Assoc)Max(?!Jobs)\w*(PerJob|PerNode)\w*|\bAssocMax(?!Jobs)\w+",
        "the job requests more than a limit of the account or quality of service allows",
        "request less, or use another account or quality of service",
    ),
    (
        (
            r"\b(QOS|Assoc)\w*(Limit|Max|Grp)\w*|\bAssociation\w+Limit|\bMax\w+Per(User|Account)"
            r"|\bQOSUsageThreshold"
        ),
        LIMIT,
        LESS_OF_LIMIT,
    ),
    (
        r"\b(JobHeldUser|JobHeldAdmin)\b",
        "the job is held",
        "release it with 'scontrol release', or ask the administrators",
    ),
    (
        r"\bDependencyNeverSatisfied\b",
        "a job that this job waits for did not end as required",
        "cancel the app, and submit it again",
    ),
    (
        r"\bDependency\b",
        "the job waits for another job",
        "look at the other job; if it failed, cancel this one",
    ),
    (
        r"\bBeginTime\b",
        "the job starts at a later time",
        "wait, or submit without the directive begin",
    ),
    (r"\bLicenses\b", "the licences that the job needs are in use", "wait"),
    (r"\bReservation\b", "the job waits for its reservation", "wait until the reservation begins"),
    (r"\b(Prolog|Cleaning)\b", "the nodes of the job are being prepared", "wait"),
    (r"\bPriority\b", "other jobs come first", SMALLER),
    (r"\bResources\b", "the resources that the job needs are in use", SMALLER),
)


def appstate_from_slurm_state(slurm_state: str) -> AppState:
    """Return the AppState for a state of Slurm; UNKNOWN if there is none.

    >>> appstate_from_slurm_state("NODE_FAIL")
    FAILED (5)
    """
    return SLURM_STATES.get(slurm_state, AppState.UNKNOWN)


def base_state(text: str) -> str:
    """Return the name of the state, without additions, from a column of squeue or sacct.

    >>> base_state("CANCELLED by 1000"), base_state("TIMEOUT+")
    ('CANCELLED', 'TIMEOUT')
    """
    return (text.split() or [""])[0].rstrip("+")
