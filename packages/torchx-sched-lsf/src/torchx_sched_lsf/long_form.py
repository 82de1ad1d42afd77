"""The long form of bjobs, which explains why jobs wait or have ended."""

from __future__ import annotations

import re
import signal
from datetime import datetime, timedelta, timezone

from torchx_kit.batch.states import JobInfo
from torchx_kit.signals import process_exit_code
from torchx_sched_lsf.states import CAUSES

# The beginning of a line about an event: "Mon Oct 28 00:16:43: Started"; with LSB_DISPLAY_YEAR in
# lsf.conf, the year follows the time.
_EVENT = re.compile(r"^\w{3} (\w{3}) +(\d+) (\d\d:\d\d:\d\d)(?: (\d{4}))?: (.*)", re.M)
_STARTS = ("started ", "dispatched ")
_ENDS = ("done successfully", "exited", "completed <")

# What LSF's signals and an exit code mean if LSF gives no reason.
_REASONS = {
    -signal.SIGUSR2: "LSF sends this signal at the run time limit (option time)",
    -signal.SIGXCPU: "LSF sends this signal at the CPU time limit",
    127: "its host cannot see the directory of the jobs; set the option jobdir to a directory on a"
    " file system that all hosts share",
}


def parse_long_form(output: str) -> dict[str, JobInfo]:
    """Return the jobs, by job id.

    Args:
        output: The output of ``bjobs -UF`` or ``bjobs -l`` for any number of jobs.
    """
    parts = re.split(r"^Job <(\d+(?:\[\d+\])?)>", output, flags=re.M)
    jobs = zip(parts[1::2], parts[2::2], strict=True)
    return {job_id: _job(job_id, text) for job_id, text in jobs}


def _job(job_id: str, text: str) -> JobInfo:
    # bjobs -l breaks lines at column 80, even within words
    unbroken = re.sub(r"\n {5,}", "", text)
    state = re.search(r"Status <(\w+)>", unbroken)
    name = state[1] if state else ""
    submitted, started, ended = _event_times(text)
    term = re.search(r"\bTERM_[A-Z_]+", unbroken) if name == "EXIT" else None
    cause = term[0] if term else ""
    code = re.search(r"Exited (?:with exit code|by signal) (\d+)", unbroken)
    exit_code = int(code[1]) if code else None
    if code and exit_code is not None:
        exit_code = -exit_code if "signal" in code[0] else process_exit_code(exit_code)
    waits = re.search(r"PENDING REASONS:\s*\n?\s*(.+?)(?:\n\s*\n|\Z)", text, re.S)
    if cause:
        known = CAUSES.get(cause)
        reason = f"{cause}: {known.meaning if known else 'see bjobs -l'}"
    elif name == "EXIT" and started is None:
        cause, reason = "TERM_OWNER", "killed before it started"
    else:
        reason = re.sub(r"\s+", " ", waits[1]).strip(" ;") if waits else ""
        reason = reason or _REASONS.get(exit_code or 0, "")
    return JobInfo(
        job_id,
        state=name,
        reason=reason,
        cause=cause,
        exit_code=exit_code,
        submitted=submitted,
        started=started,
        ended=ended,
    )


def _event_times(text: str) -> tuple[datetime | None, datetime | None, datetime | None]:
    """Return when a job was submitted, started last, and ended since then."""
    submitted = started = ended = None
    for match in _EVENT.finditer(text):
        when = _event_time(*match.groups()[:4])
        # the index of the element may precede the event: "[7] started on <hostA>"
        event = re.sub(r"^\[\d+\] ", "", match[5]).lower()
        if event.startswith("submitted "):
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
