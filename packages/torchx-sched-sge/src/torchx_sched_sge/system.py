"""Grid Engine's commands, and the forms of their output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from torchx_kit.batch.errors import (
    BatchError,
    EndedError,
    LimitError,
    RefusedError,
    UnreachableError,
)
from torchx_kit.batch.states import JobInfo, Phase
from torchx_kit.batch.system import BatchSystem, NativeJob, ScriptParts
from torchx_kit.signals import process_exit_code
from torchx_sched_sge.options import SgeOpts
from torchx_sched_sge.states import CAUSES, LOST, REASONS, STATES, state_name
from torchx_specs.model.app import Role


class Sge(BatchSystem):
    """Grid Engine. Each role is a job, whose tasks are the replicas."""

    backend = "sge"
    title = "Grid Engine"
    states = STATES
    causes = CAUSES
    reasons = REASONS
    has_tasks = True
    hold_option = "-h"
    requeue_options = ("-r", "y")  # a job that ends with 99 starts again by default
    passes_environment = False  # qstat -j shows the variables of qsub -V to all users
    # Grid Engine replaces only some of them, and the others keep the values of the submitting job.
    # Its commands need those that are left out: they name the cluster.
    job_variables = (
        r"SGE_(?!(ROOT|CELL|CLUSTER_NAME|(QMASTER|EXECD)_PORT)$).*|ARC|ENVIRONMENT|JOB_(ID|NAME|SCRIPT)|NHOSTS|NQUEUES|NSLOTS|PE|PE_HOSTFILE|QUEUE"
        r"|REQUEST|RESTARTED"
    )
    # An execution host may not be a submit host, so the script runs no command of Grid Engine.
    script = ScriptParts(task="$((SGE_TASK_ID - 1))")
    array_size = 75000  # the default of max_aj_tasks

    not_installed = (
        "Grid Engine is not installed: {error}; run this on a submit"
        " host of the cluster, with its settings.sh sourced"
    )
    messages = {
        UnreachableError: (
            "unable to contact qmaster",
            "unable to send message to qmaster",
            "commlib error",
            "failed receiving gdi request",
        ),
        RefusedError: (
            "unknown queue",
            "unknown resource",
            "parallel environment",
            "project",
            "unknown option",
            "denied: host",
            "script file",
            "invalid",
        ),
        LimitError: ("max_aj_tasks", "max_u_jobs", "job rejected: only"),
        EndedError: ("does not exist", "do not exist", "deletion", "deleted"),
    }
    env = {"LC_ALL": "C"}  # the output is parsed, so it must not be translated
    # These commands print times without a time zone.
    command_env = {"qstat": {"TZ": "UTC0"}, "qacct": {"TZ": "UTC0"}}

    def options(self, role: Role, cfg: SgeOpts) -> list[str]:
        resource = role.resource
        options = []
        if cfg.queue:
            options += ["-q", cfg.queue]
        if cfg.project:
            options += ["-P", cfg.project]
        if resource.cpu > 1:
            options += ["-pe", cfg.pe, str(resource.cpu)]
        requests = []
        if resource.memMB > 0 and cfg.memory:
            slots = max(resource.cpu, 1) if cfg.memory_per_slot else 1
            requests.append(f"{cfg.memory}={-(-resource.memMB // slots)}M")
        if resource.gpu > 0:
            requests.append(f"{cfg.gpu}={resource.gpu}")
        if cfg.time:
            requests.append(f"h_rt={cfg.time_limit}")
        if requests:
            options += ["-l", ",".join(requests)]
        return [*options, *(cfg.extra or ())]

    def submission(self, job: NativeJob) -> tuple[list[str], bytes | None]:
        argv = ["qsub", "-terse", *(["-h"] if job.is_held else []), "-N", job.name]
        argv += ["-t", f"1-{job.tasks}", *(["-tc", str(job.limit)] if job.limit else [])]
        argv += ["-hold_jid", job.previous] if job.previous else []
        argv += ["-wd", job.folder, "-o", "/dev/null", "-e", "/dev/null", *job.options]
        return [*argv, "-b", "y", "-shell", "n", *job.argv], None

    def parse_job_id(self, output: str) -> str:
        # such as 17.1-4:1; messages may precede it
        ids = re.findall(r"^(\d+)(?:\.\S*)?\s*$", output, re.M)
        return ids[-1] if ids else ""

    def listing_argv(self, job_ids: Sequence[str] | None) -> list[str]:
        # With -f, the queue instances of running jobs have their states, too.
        return ["qstat", "-xml", "-f", "-ne", "-g", "d", "-u", self.host.user()]

    def parse_listing(self, output: str) -> Iterator[JobInfo]:
        from xml.etree import ElementTree  # imported here, so that start-up does not load it

        try:
            # S314 does not apply: Grid Engine makes the XML, and escapes the users' texts. qstat
            # also prints control characters of job names, which XML forbids.
            text = re.sub(r"[\0-\x08\x0b\x0c\x0e-\x1f]", "", output)
            root = ElementTree.fromstring(text)  # noqa: S314
        except (ElementTree.ParseError, UnicodeEncodeError) as e:
            raise BatchError(f"qstat printed no valid XML: {e}; see qstat -xml") from None
        queues = [*root.iter("Queue-List")]
        running = {job: queue for queue in queues for job in queue.iter("job_list")}
        for element in root.iter("job_list"):
            letters = (element.findtext("state") or "").strip()
            queue = running.get(element)  # such as all.q@n1
            is_lost = queue is not None and "u" in (queue.findtext("state") or "")
            job = JobInfo(
                element.findtext("JB_job_number") or "",
                element.findtext("JB_name") or "",
                LOST if is_lost else state_name(letters),
                "" if queue is None else (queue.findtext("name") or "").partition("@")[2],
                was_requeued="R" in letters,
                submitted=_time(element.findtext("JB_submission_time") or ""),
                started=_time(element.findtext("JAT_start_time") or ""),
            )
            for number in parse_tasks(element.findtext("tasks") or "1"):
                yield replace(job, job_id=f"{job.job_id}.{number}")

    def explain(self, jobs: Sequence[JobInfo]) -> Mapping[str, JobInfo]:
        queued = {job.job_id: job for job in jobs if job.state}
        ended = {self.job_of_task(job.job_id) for job in jobs if not job.state}
        found: dict[str, JobInfo] = {}
        if queued:
            details = self._query("qstat", "-j", ",".join({*map(self.job_of_task, queued)}))
            waiting, errors = parse_details(details)
            for job_id, job in queued.items():
                is_error = self.phase_of(job) is Phase.ERROR
                reason = (errors if is_error else waiting).get(self.job_of_task(job_id), "")
                if is_error:
                    reason = f"Grid Engine cannot start it: {reason or 'see qstat -j'}"
                found[job_id] = replace(job, reason=reason)
        for job_id in ended:
            found |= parse_accounting(self._query("qacct", "-j", job_id))
        return found

    def _query(self, *argv: str) -> str:
        """Return the output of a query; empty if it fails."""
        try:
            return self.run_idempotent(*argv)
        except BatchError:  # the accounting may be on another machine
            return ""

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        return ["qdel", *job_ids]

    def release_argv(self, job_ids: Sequence[str]) -> list[str]:
        return ["qrls", "-h", "u", *job_ids]

    def error_summary(self, output: str) -> str:
        """Return the messages on one line, without the text that qsub adds to every refusal."""
        summary = super().error_summary(output).removeprefix("Unable to run job: ")
        return summary.removesuffix("; Exiting.").rstrip(".")


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


# qstat prints these lines if it has no scheduling information.
_NO_INFO = ("(Collecting of", "There are no messages available")


def parse_details(output: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return why jobs wait and why jobs could not be started, by job id, from ``qstat -j``.

    Grid Engine collects the first reasons at intervals, and only if its scheduler's configuration
    has ``schedd_job_info true``.
    """
    waiting, errors = {}, {}
    for block in re.split(r"^=+$", output, flags=re.M):
        job = re.search(r"^job_number: +(\d+)", block, re.M)
        if job is None:
            continue
        if reason := _pending_reason(block):
            waiting[job[1]] = reason
        error = re.search(r"^error reason\s+\d+:\s+(.*)", block, re.M)
        if error is not None:
            # the reason begins with a date, a time and the ids of a user and a process
            text = re.sub(r"^\S+ \S+ \[\d+:\d+\]: (error: )?", "", error[1])
            errors[job[1]] = text.strip()
    return waiting, errors


def _pending_reason(block: str) -> str:
    """Return the scheduling information of a job, at most three lines.

    Lines that differ only in the host or queue, and in the amount that this host or queue offers,
    are replaced by one line with their number. A line about all queues replaces the lines about
    single queues and hosts.
    """
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
        group[0] + (f" ({len(group)} times)" if len(group) > 1 else "") for group in groups.values()
    ]
    reasons += [line for line in lines if summaries and '"' not in line and line not in reasons]
    return "; ".join(reasons[:3])


def parse_accounting(output: str) -> dict[str, JobInfo]:
    """Return the tasks in the output of ``qacct -j``, by id; for each task, its last run."""
    found = {}
    for block in re.split(r"^=+$", output, flags=re.M):
        values = dict(re.findall(r"^(\w+) +(.*?) *$", block, re.M))
        code = re.match(r"\d+", values.get("exit_status", ""))
        if code is None:
            continue
        # after the failure code, there may be its description: "100 : assumedly after job"
        cause, _, text = (part.strip() for part in values.get("failed", "0").partition(":"))
        cause = cause.split()[0] if cause else "0"
        number = values.get("taskid", "1")
        job_id = f"{values.get('jobnumber', '')}.{number if number.isdigit() else 1}"
        known = CAUSES.get(cause)
        exit_code = process_exit_code(int(code[0]))
        reason = known.meaning if known else f"failure code {cause} of Grid Engine: {text}"
        found[job_id] = JobInfo(
            job_id,
            reason="" if cause == "0" else reason,
            cause="" if cause == "0" else cause,
            # Without an exit status of the job, Grid Engine writes 0.
            exit_code=None if exit_code == 0 and cause != "0" else exit_code,
            started=_time(values.get("start_time", "")),
            ended=_time(values.get("end_time", "")),
        )
    return found
