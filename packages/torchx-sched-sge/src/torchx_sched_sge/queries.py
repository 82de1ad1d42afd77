"""Queries of jobs with qstat and qacct, and parsers of their output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from torchx_sched_sge.client import Sge, SgeError
from torchx_sched_sge.states import failure_reason
from torchx_specs.errors import BackendError


@dataclass(frozen=True)
class Task:
    """A task of an array job in the output of qstat.

    Attributes:
        job_id: The job's id.
        number: The task's number; the first task is 1.
        state: The letters of the task's state, such as ``qw``.
        name: The job's name.
        host: The host that runs the task; empty if no host runs it.
        submitted: When the job was submitted; None for a running task, because qstat prints only
            the start of such a task.
        started: When the task started; None if it waits.
    """

    job_id: str
    number: int
    state: str
    name: str
    host: str = ""
    submitted: datetime | None = None
    started: datetime | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits for a host."""
        return "q" in self.state or "w" in self.state

    @property
    def has_error(self) -> bool:
        """Whether Grid Engine could not start the task, and keeps it in the queue."""
        return "E" in self.state


@dataclass(frozen=True)
class Ended:
    """The end of a task in the accounting.

    Attributes:
        reason: Why Grid Engine ended the task; empty if the task ended by itself.
        exit_code: The exit code, as a shell reports it.
        started: When the task started; None if unknown.
        ended: When the task ended; None if unknown.
    """

    reason: str
    exit_code: int
    started: datetime | None = None
    ended: datetime | None = None


def all_tasks(sge: Sge) -> dict[tuple[str, int], Task]:
    """Return the user's tasks that have not ended, by job id and number.

    Raises:
        SgeError: The query failed.
    """
    output = sge.run_idempotent("qstat", "-xml", "-g", "d", "-u", sge.host.user())
    return {(task.job_id, task.number): task for task in parse_qstat(output)}


def parse_qstat(output: str) -> Iterator[Task]:
    """Yield the tasks in the output of ``qstat -xml -g d``.

    Raises:
        SgeError: The output is not XML.
    """
    from xml.etree import ElementTree  # imported here, so that start-up does not load it

    try:
        # S314 does not apply: Grid Engine makes the XML, and escapes the users' texts. qstat also
        # prints control characters of job names, which XML forbids, so they are removed.
        text = re.sub(r"[\0-\x08\x0b\x0c\x0e-\x1f]", "", output)
        root = ElementTree.fromstring(text)  # noqa: S314
    except (ElementTree.ParseError, UnicodeEncodeError) as e:
        raise SgeError(f"qstat printed no valid XML: {e}; see qstat -xml") from None
    for element in root.iter("job_list"):
        queue = element.findtext("queue_name") or ""
        for number in parse_tasks(element.findtext("tasks") or "1"):
            yield Task(
                element.findtext("JB_job_number") or "",
                number,
                (element.findtext("state") or "").strip(),
                element.findtext("JB_name") or "",
                queue.partition("@")[2],
                _time(element.findtext("JB_submission_time") or ""),
                _time(element.findtext("JAT_start_time") or ""),
            )


def _time(text: str) -> datetime | None:
    """Parse a time in the output of qstat or qacct; return None for any other text.

    The client sets the time zone of the commands to UTC. Univa's and Altair's Grid Engine print
    another format, and fractions of seconds.

    >>> _time("2026-11-23T01:10:14") == _time("Mon Nov 23 01:10:14 2026")
    True
    """
    for form in ("%Y-%m-%dT%H:%M:%S", "%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S"):
        try:
            when = datetime.strptime(text.strip().partition(".")[0], form)
        except ValueError:
            continue
        return when.replace(tzinfo=timezone.utc)
    return None


def parse_tasks(text: str) -> Iterator[int]:
    """Yield the numbers in a list of tasks.

    >>> list(parse_tasks("1,4-8:2"))
    [1, 4, 6, 8]
    """
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if match:
            first = int(match[1])
            yield from range(first, int(match[2] or first) + 1, int(match[3] or 1))


def error_reason(sge: Sge, job_id: str) -> str:
    """Return why Grid Engine cannot start a job; an empty string if the reason is unknown."""
    try:
        output = sge.run_idempotent("qstat", "-j", job_id)
    except BackendError:
        return ""
    return parse_error_reason(output)


def parse_error_reason(output: str) -> str:
    """Return the first error reason in the output of ``qstat -j``; empty if there is none."""
    match = re.search(r"^error reason\s+\d+:\s+(.*)", output, re.M)
    # the reason begins with a date, a time and the ids of a user and a process
    return re.sub(r"^\S+ \S+ \[\d+:\d+\]: (error: )?", "", match[1]).strip() if match else ""


def pending_reasons(sge: Sge, job_ids: Iterable[str]) -> dict[str, str]:
    """Return why jobs wait, by job id, in one query.

    A job is left out if Grid Engine gives no reason. Grid Engine collects reasons at intervals, and
    only if its scheduler's configuration has ``schedd_job_info true``. If Grid Engine cannot be
    queried, the result is empty.

    Args:
        sge: The client.
        job_ids: Ids of jobs; without ids, nothing is queried.
    """
    ids = ",".join(job_ids)
    try:
        output = sge.run_idempotent("qstat", "-j", ids) if ids else ""
    except BackendError:
        return {}
    return parse_pending_reasons(output)


# qstat prints these lines if it has no scheduling information.
_NO_INFO = ("(Collecting of", "There are no messages available")


def parse_pending_reasons(output: str) -> dict[str, str]:
    """Return the scheduling information in the output of ``qstat -j``, by job id.

    Lines that differ only in the host or queue, and in the amount that this host or queue offers,
    are replaced by one line with their number. A line about all queues replaces the lines about
    single queues and hosts. At most three lines of a job are returned.
    """
    found = {}
    for block in re.split(r"^=+$", output, flags=re.M):
        job = re.search(r"^job_number: +(\d+)", block, re.M)
        info = re.search(r"^scheduling info: +(.*(?:\n {8,}.*)*)", block, re.M)
        lines = [line.strip() for line in info[1].splitlines()] if info else []
        groups: dict[str, list[str]] = {}
        for line in lines:
            if line and not line.startswith(_NO_INFO):
                kind = re.sub(r'"[^"]*"|offers only \S+', "", line)
                groups.setdefault(kind, []).append(line)
        # the line "All queues dropped because ..." summarizes the lines about single queues
        summaries = [line for line in lines if line.startswith("All queues dropped")]
        reasons = summaries or [
            group[0] + (f" ({len(group)} times)" if len(group) > 1 else "")
            for group in groups.values()
        ]
        reasons += [line for line in lines if summaries and '"' not in line and line not in reasons]
        if job and reasons:
            found[job[1]] = "; ".join(reasons[:3])
    return found


def ended_tasks(sge: Sge, job_id: str) -> dict[int, Ended]:
    """Return the ended tasks of a job, by number; an empty dict if there is no accounting."""
    try:
        return parse_qacct(sge.run_idempotent("qacct", "-j", job_id))
    except BackendError:  # the accounting may be on another machine
        return {}


def parse_qacct(output: str) -> dict[int, Ended]:
    """Return the tasks in the output of ``qacct -j``, by number; for each task, its last run."""
    found = {}
    for block in re.split(r"^=+$", output, flags=re.M):
        # after a number, the value may have its description: "100 : assumedly after job"
        rows = re.findall(r"^(taskid|failed|exit_status) +(\d+)[ :]*(.*)", block, re.M)
        values = {name: (int(number), text.strip()) for name, number, text in rows}
        if "exit_status" in values:
            number, _ = values.get("taskid", (1, ""))
            reason = failure_reason(*values.get("failed", (0, "")))
            times = dict(re.findall(r"^(start_time|end_time) +(.*)", block, re.M))
            found[number] = Ended(
                reason,
                values["exit_status"][0],
                _time(times.get("start_time", "")),
                _time(times.get("end_time", "")),
            )
    return found
