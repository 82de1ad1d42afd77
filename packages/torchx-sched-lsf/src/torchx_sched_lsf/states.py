"""What LSF's states and reasons mean."""

from __future__ import annotations

import re

from torchx_specs.model.status import AppState

JOB_STATE: dict[str, AppState] = {
    "DONE": AppState.SUCCEEDED,
    "EXIT": AppState.FAILED,
    "PEND": AppState.PENDING,
    "RUN": AppState.RUNNING,
    "PSUSP": AppState.PENDING,
    "USUSP": AppState.PENDING,
    "SSUSP": AppState.PENDING,
}

#: Exit code of a job that ``bkill`` has ended.
KILLED = "130"

# What bjobs says of an end, in its long form.
_REASONS = {
    "TERM_MEMLIMIT": "out of memory: ask for more (memMB of the role's resource)",
    "TERM_SWAP": "out of memory: ask for more (memMB of the role's resource)",
    "TERM_RUNLIMIT": "time limit reached (option time)",
    "TERM_CPULIMIT": "limit of CPU time reached",
    "TERM_PREEMPT": "preempted by another job",
    "TERM_OWNER": "killed by its owner",
    "TERM_ADMIN": "killed by an administrator",
    "TERM_FORCE_OWNER": "killed by its owner",
    "TERM_FORCE_ADMIN": "killed by an administrator",
    "TERM_LOAD": "killed for the load of the host",
    "TERM_EXTERNAL_SIGNAL": "killed by a signal from outside",
    "TERM_REQUEUE_OWNER": "requeued by its owner",
    "TERM_RMS": "the resource manager has ended it",
    "TERM_UNKNOWN": "LSF does not know why it has ended",
}
_CANCELLED = frozenset({"TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"})


def get_job_state(state_str: str, exit_code: str) -> AppState:
    """Returns our state for one of LSF's and an exit code."""
    state = JOB_STATE.get(state_str, AppState.UNKNOWN)
    return AppState.CANCELLED if state_str == "EXIT" and exit_code == KILLED else state


def explain(text: str) -> tuple[str, int | None, bool]:
    """Returns what one job's long form says: the reason, the exit code, whether it was killed.

    Args:
        text: of ``bjobs -UF`` or ``bjobs -l``
    """
    # the long form breaks lines at column 80, in the middle of words
    whole = re.sub(r"\n {5,}", "", text)
    found = re.search(r"\bTERM_[A-Z_]+", whole)
    name = found[0] if found else ""
    code = re.search(r"Exited with exit code (\d+)", whole)
    exit_code = int(code[1]) if code else None
    reason = f"{name}: {_REASONS.get(name, 'see bjobs -l')}" if name else ""
    pending = re.search(r"PENDING REASONS:\s*\n?\s*(.+?)(?:\n\s*\n|\Z)", text, re.S)
    if pending:
        reason = re.sub(r"\s+", " ", pending[1]).strip(" ;")
    return reason, exit_code, name in _CANCELLED
