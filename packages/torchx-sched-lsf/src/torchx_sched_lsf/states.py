"""The states of LSF's jobs, and LSF's reasons for their ends."""

from __future__ import annotations

from torchx_kit.batch.states import Cause, JobState, Phase
from torchx_kit.jobs.pending_reasons import LESS_OF_LIMIT, LIMIT, SMALLER
from torchx_specs.model.status import AppState

#: The states in the column STAT of bjobs.
STATES = {
    "PEND": JobState(Phase.WAITING),
    "WAIT": JobState(Phase.WAITING, "waits in a chunk of jobs that runs"),
    "PROV": JobState(Phase.WAITING, "waits for its host, which wakes up"),
    "PSUSP": JobState(Phase.WAITING, "held; bresume releases it"),
    "RUN": JobState(Phase.RUNNING),
    "USUSP": JobState(Phase.STOPPED, "stopped; bresume continues it"),
    "SSUSP": JobState(Phase.STOPPED, "stopped by LSF, because of load or of the queue's windows"),
    "UNKWN": JobState(Phase.RUNNING, "its host does not answer"),
    "DONE": JobState(Phase.SUCCEEDED),
    "EXIT": JobState(Phase.FAILED),
    "ZOMBI": JobState(Phase.FAILED, "killed or rerun while its host did not answer"),
}


def _failed(meaning: str) -> Cause:
    return Cause(AppState.FAILED, meaning)


_BY_OWNER = Cause(AppState.CANCELLED, "killed by its owner")
_BY_ADMIN = Cause(AppState.CANCELLED, "killed by an administrator")
_MEMORY = _failed("out of memory; request more (memMB of the role's resource)")
_RUN_TIME = _failed("run time limit reached (option time)")
_RECLAIMED = _failed("its host was reclaimed by the cloud")

#: The termination reasons in the long form of bjobs.
CAUSES = {
    "TERM_OWNER": _BY_OWNER,
    "TERM_FORCE_OWNER": _BY_OWNER,
    "TERM_BUCKET_KILL": _BY_OWNER,
    "TERM_ADMIN": _BY_ADMIN,
    "TERM_FORCE_ADMIN": _BY_ADMIN,
    "TERM_CHKPNT": Cause(AppState.CANCELLED, "killed after a checkpoint"),
    "TERM_MEMLIMIT": _MEMORY,
    "TERM_SWAP": _MEMORY,
    "TERM_RUNLIMIT": _RUN_TIME,
    "TERM_DEADLINE": _RUN_TIME,
    "TERM_CPULIMIT": _failed("CPU time limit reached"),
    "TERM_PROCESSLIMIT": _failed("limit of the number of processes reached"),
    "TERM_THREADLIMIT": _failed("limit of the number of threads reached"),
    "TERM_CWD_NOTEXIST": _failed("the host cannot see the working directory (option jobdir)"),
    "TERM_PRE_EXEC_FAIL": _failed("the pre-execution command failed too often"),
    "TERM_PREEMPT": _failed("preempted by another job"),
    "TERM_LOAD": _failed("killed because of the load of the host"),
    "TERM_WINDOW": _failed("the run window of the queue closed"),
    "TERM_ORPHAN_SYSTEM": _failed("its dependency can never be satisfied"),
    "TERM_ZOMBIE": _failed("its host failed"),
    "TERM_REMOVE_HUNG_JOB": _failed("removed from LSF, because its host did not answer"),
    "TERM_RC": _RECLAIMED,
    "TERM_REQUEUE_RC": _RECLAIMED,
    "TERM_REQUEUE_OWNER": _failed("requeued by its owner"),
    "TERM_REQUEUE_ADMIN": _failed("requeued by an administrator"),
    "TERM_EXTERNAL_SIGNAL": _failed("killed by a signal that LSF did not send"),
    "TERM_DATA": _failed("its data could not be staged"),
    "TERM_RMS": _failed("killed by the resource manager"),
    "TERM_UNKNOWN": _failed("LSF does not know the reason"),
}

#: Explanations of the pending reasons of bjobs -p.
REASONS = (
    (
        r"New job is waiting for scheduling",
        "LSF has not tried to start the job yet",
        "wait a few seconds",
    ),
    (
        r"Dependency condition invalid or never satisfied",
        "a job that this job waits for did not end as required",
        "cancel the app, and submit it again",
    ),
    (
        r"[Dd]ependency condition not satisfied",
        "the job waits for another job of the app",
        "wait; the first job of the app has to start before the others",
    ),
    (
        r"suspended by (the user|LSF admin|administrator)",
        "the job is held",
        "release it with 'bresume', or ask the administrators",
    ),
    (
        r"([Qq]ueue is inactivated|[Dd]ispatch windows? closed|run window is closed)",
        "the queue takes no jobs now",
        "use another queue, or wait for its window",
    ),
    (
        (
            r"slot limit|job limit|[Jj]ob slots? .*limit|Number of jobs exceeds quota"
            r"|limit defined .* has been reached"
        ),
        LIMIT,
        LESS_OF_LIMIT,
    ),
    (
        (
            r"Not enough (job slot|processors|hosts)|has not enough job slots"
            r"|requirements? for res(erving|ource)|exclusive execution not satisfied"
        ),
        "the resources that the job needs are in use",
        SMALLER,
    ),
    (
        r"resource requirements not satisfied",
        "no host has the requested resources now",
        "wait, or request less; 'bhosts' and 'lshosts' show what exists",
    ),
    (
        (
            r"Closed by LSF administrator|Host is locked|Load threshold reached"
            r"|Load information unavailable|LIM is unreachable"
        ),
        "the hosts take no jobs now",
        "wait, or ask the administrators",
    ),
)
