"""Map LSF's job states to AppState, and its termination reasons to messages."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

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

_MEMORY = "out of memory; request more (memMB of the role's resource)"
# Messages for LSF's termination reasons in the long form of bjobs.
_REASONS = {
    "TERM_MEMLIMIT": _MEMORY,
    "TERM_SWAP": _MEMORY,
    "TERM_RUNLIMIT": "run time limit reached (option time)",
    "TERM_DEADLINE": "run time limit reached (option time)",
    "TERM_CPULIMIT": "CPU time limit reached",
    "TERM_PROCESSLIMIT": "limit of the number of processes reached",
    "TERM_THREADLIMIT": "limit of the number of threads reached",
    "TERM_CWD_NOTEXIST": "the host cannot see the working directory (option jobdir)",
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
_BY_USER = frozenset({"TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"})


@dataclass(frozen=True)
class Explanation:
    """LSF's explanation of a job's state.

    Attributes:
        reason: Why the job is pending or ended; empty if LSF gives no reason.
        exit_code: The job's exit code, as a shell reports it; None if LSF gives none.
        cancelled: Whether a user or an administrator ended the job.
    """

    reason: str = ""
    exit_code: int | None = None
    cancelled: bool = False


def get_job_state(state_str: str, exit_code: str) -> AppState:
    """Return the AppState for a job state of LSF and an exit code.

    Args:
        state_str: LSF's state, such as ``PEND``.
        exit_code: The exit code; empty or ``-`` if there is none.
    """
    state = JOB_STATE.get(state_str, AppState.UNKNOWN)
    return AppState.CANCELLED if state_str == "EXIT" and exit_code == KILLED else state


def signal_hint(exit_code: int) -> str:
    """Return which limit a signal suggests, or an empty string.

    Args:
        exit_code: The exit code as :mod:`subprocess` reports it: negative for a signal.
    """
    if exit_code == -signal.SIGUSR2:
        return "LSF sends this signal at the run time limit (option time)"
    return "LSF sends this signal at the CPU time limit" if exit_code == -signal.SIGXCPU else ""


def parse_long_form(output: str) -> dict[str, Explanation]:
    """Return the explanations of jobs, by job id.

    Args:
        output: The output of ``bjobs -UF`` or ``bjobs -l`` for any number of jobs.
    """
    parts = re.split(r"^Job <(\d+)>", output, flags=re.M)
    return dict(zip(parts[1::2], map(_explanation, parts[2::2]), strict=True))


def _explanation(text: str) -> Explanation:
    # bjobs -l breaks lines at column 80, even within words
    unbroken = re.sub(r"\n {5,}", "", text)
    term = re.search(r"\bTERM_[A-Z_]+", unbroken)
    name = term[0] if term else ""
    code = re.search(r"Exited with exit code (\d+)", unbroken)
    exit_code = int(code[1]) if code else None
    reason = f"{name}: {_REASONS.get(name, 'see bjobs -l')}" if name else ""
    pending = re.search(r"PENDING REASONS:\s*\n?\s*(.+?)(?:\n\s*\n|\Z)", text, re.S)
    if pending:
        reason = re.sub(r"\s+", " ", pending[1]).strip(" ;")
    # Without a reason, exit code 130 stands for bkill; at a memory limit, LSF gives a reason.
    cancelled = name in _BY_USER or (not name and str(exit_code) == KILLED)
    return Explanation(reason, exit_code, cancelled)
