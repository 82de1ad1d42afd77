"""Map LSF's job states to AppState, and read reasons, exit codes and times from bjobs' output."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

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

# The beginning of a line about an event: "Mon Oct 28 00:16:43: Started"; with LSB_DISPLAY_YEAR in
# lsf.conf, the year follows the time.
_EVENT = re.compile(r"^\w{3} (\w{3}) +(\d+) (\d\d:\d\d:\d\d)(?: (\d{4}))?: (.*)", re.M)
_STARTS = ("Started ", "[1] started", "Dispatched ")
_ENDS = ("Done successfully", "Exited", "Completed <")


@dataclass(frozen=True)
class Explanation:
    """LSF's explanation of a job's state.

    Attributes:
        reason: Why the job is pending or ended; empty if LSF gives no reason.
        exit_code: The job's exit code, as a shell reports it; None if LSF gives none.
        cancelled: Whether a user or an administrator ended the job.
        submitted: When the job was submitted; None if LSF does not show it.
        started: When the job started last; None if it has not started.
        ended: When the job ended; None if it has not ended.
    """

    reason: str = ""
    exit_code: int | None = None
    cancelled: bool = False
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None


def get_job_state(state_str: str, exit_code: str) -> AppState:
    """Return the AppState for a job state of LSF and an exit code.

    Args:
        state_str: LSF's state, such as ``PEND``.
        exit_code: The exit code; empty or ``-`` if there is none.
    """
    state = JOB_STATE.get(state_str, AppState.UNKNOWN)
    return AppState.CANCELLED if state_str == "EXIT" and exit_code == KILLED else state


def signal_hint(exit_code: int) -> str:
    """Return the limit at which LSF sends a signal, or an empty string for any other exit code.

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
    parts = re.split(r"^Job <(\d+(?:\[\d+\])?)>", output, flags=re.M)
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
    return Explanation(reason, exit_code, cancelled, *_event_times(text))


def _event_times(text: str) -> tuple[datetime | None, datetime | None, datetime | None]:
    """Return when a job was submitted, started last, and ended since then."""
    submitted = started = ended = None
    for match in _EVENT.finditer(text):
        when, event = _event_time(*match.groups()[:4]), match[5]
        if event.startswith("Submitted "):
            submitted = when
        elif event.startswith(_STARTS):
            started, ended = when, None
        elif event.startswith(_ENDS):
            ended = when
    return submitted, started, ended


def _event_time(month: str, day: str, clock: str, year: str | None) -> datetime | None:
    """Return the time of an event, or None; without a year, assume the last twelve months."""
    now = datetime.now(timezone.utc)
    try:
        number = int(year or now.year)
        when = datetime.strptime(f"{number} {month} {day} {clock} +0000", "%Y %b %d %H:%M:%S %z")
        if not year and when > now + timedelta(days=1):
            when = when.replace(year=number - 1)
    except ValueError:
        return None
    return when
