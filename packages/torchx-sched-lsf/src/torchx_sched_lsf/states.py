"""Map LSF's job states to AppState, and its termination reasons to messages."""

from __future__ import annotations

import re

from torchx_specs.model.status import AppState

#: AppState for each of LSF's job states.
JOB_STATE: dict[str, AppState] = {
    "DONE": AppState.SUCCEEDED,
    "EXIT": AppState.FAILED,
    "PEND": AppState.PENDING,
    "RUN": AppState.RUNNING,
    "PSUSP": AppState.PENDING,
    "USUSP": AppState.PENDING,
    "SSUSP": AppState.PENDING,
}

#: Exit code of a job that ``bkill`` ended.
KILLED = "130"

# Messages for LSF's termination reasons in the long form of bjobs.
_REASONS = {
    "TERM_MEMLIMIT": "out of memory; request more (memMB of the role's resource)",
    "TERM_SWAP": "out of memory; request more (memMB of the role's resource)",
    "TERM_RUNLIMIT": "time limit reached (option time)",
    "TERM_CPULIMIT": "CPU time limit reached",
    "TERM_PREEMPT": "preempted by another job",
    "TERM_OWNER": "killed by its owner",
    "TERM_ADMIN": "killed by an administrator",
    "TERM_FORCE_OWNER": "killed by its owner",
    "TERM_FORCE_ADMIN": "killed by an administrator",
    "TERM_LOAD": "killed because of the load of the host",
    "TERM_EXTERNAL_SIGNAL": "killed by an external signal",
    "TERM_REQUEUE_OWNER": "requeued by its owner",
    "TERM_RMS": "killed by the resource manager",
    "TERM_UNKNOWN": "LSF does not know the reason",
}
_CANCELLED = frozenset({"TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"})


def get_job_state(state_str: str, exit_code: str) -> AppState:
    """Return the AppState for a job state of LSF and an exit code.

    Args:
        state_str: LSF's state, such as ``PEND``.
        exit_code: The exit code; empty or ``-`` if there is none.
    """
    state = JOB_STATE.get(state_str, AppState.UNKNOWN)
    return AppState.CANCELLED if state_str == "EXIT" and exit_code == KILLED else state


def parse_long_form(output: str) -> tuple[str, int | None, bool]:
    """Return why a job is pending or ended, the exit code, and whether a user or admin killed it.

    Args:
        output: The output of ``bjobs -UF`` or ``bjobs -l`` for the job.
    """
    # bjobs -l breaks lines at column 80, even within words
    unbroken = re.sub(r"\n {5,}", "", output)
    term = re.search(r"\bTERM_[A-Z_]+", unbroken)
    name = term[0] if term else ""
    code = re.search(r"Exited with exit code (\d+)", unbroken)
    exit_code = int(code[1]) if code else None
    reason = f"{name}: {_REASONS.get(name, 'see bjobs -l')}" if name else ""
    pending = re.search(r"PENDING REASONS:\s*\n?\s*(.+?)(?:\n\s*\n|\Z)", output, re.S)
    if pending:
        reason = re.sub(r"\s+", " ", pending[1]).strip(" ;")
    return reason, exit_code, name in _CANCELLED
