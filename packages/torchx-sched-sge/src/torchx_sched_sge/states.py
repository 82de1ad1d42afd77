"""The states of Grid Engine's jobs, and the failure codes of its accounting."""

from __future__ import annotations

from torchx_kit.batch.states import Cause, JobState, Phase
from torchx_kit.jobs.pending_reasons import LESS_OF_LIMIT, LIMIT, SMALLER
from torchx_specs.model.status import AppState

#: The state of a job whose host does not answer. Grid Engine itself shows it as running.
LOST = "lost"
#: The states that :func:`state_name` returns, and :data:`LOST`. qstat(1) describes them.
STATES = {
    "waiting": JobState(Phase.WAITING),
    "held": JobState(Phase.WAITING, "held; qrls releases it"),
    "error": JobState(Phase.ERROR),
    "running": JobState(Phase.RUNNING),
    LOST: JobState(Phase.RUNNING, "its host does not answer; qdel -f ends it without the host"),
    "suspended": JobState(Phase.STOPPED, "suspended"),
    "deleting": JobState(Phase.RUNNING, "Grid Engine is deleting it"),
}

#: Failure codes of the accounting; sge_status(5) lists them.
CAUSES = {
    "19": Cause(AppState.FAILED, "its host failed, or started again"),
    "28": Cause(
        AppState.FAILED, "its host cannot change to the working directory (option job_dir)"
    ),
    "37": Cause(
        AppState.FAILED,
        "limit of the run time, CPU time or memory reached (options time and memory)",
    ),
    "100": Cause(AppState.FAILED, "killed: by qdel, by a limit of its host, or for lack of memory"),
}

#: Explanations of the "scheduling info" of qstat -j.
REASONS = (
    (
        r"because it offers only|cannot run in PE .*because it only offers",
        "no host offers what the job requests",
        "request less; 'qhost -F' shows what the hosts offer",
    ),
    (
        r"cannot run because it exceeds limit|exceeds limit \".*\" in rule",
        LIMIT,
        LESS_OF_LIMIT,
    ),
    (
        r"max_aj_instances",
        "as many tasks of the job run as may run at once",
        "wait",
    ),
    (
        r"dropped because of job dependencies",
        "the job waits for another job",
        "look at the other job; if it failed, cancel this one",
    ),
    (
        r"[Jj]ob is in hold state",
        "the job is held",
        "release it with 'qrls', or ask the administrators",
    ),
    (
        r"execution time not reached",
        "the job starts at a later time",
        "wait, or submit without a start time",
    ),
    (
        r"dropped because it is full|because of overload or full",
        "all slots are in use",
        SMALLER,
    ),
    (
        r"dropped because it is (temporarily not available|disabled|overloaded)",
        "the queues take no jobs now",
        "wait, or ask the administrators",
    ),
)


def state_name(letters: str) -> str:
    """Return the state for the letters of the column ``state`` of qstat.

    >>> [state_name(letters) for letters in ("qw", "hqw", "Rr", "Eqw", "S", "dr")]
    ['waiting', 'held', 'running', 'error', 'suspended', 'deleting']
    """
    found = set(letters)
    if found & set("qw") and "E" not in found:
        return "held" if "h" in found else "waiting"
    kinds = {"error": "E", "suspended": "sSTNP", "deleting": "d", "running": "rtR"}
    return next((name for name, some in kinds.items() if found & set(some)), letters)
