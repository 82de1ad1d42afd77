"""Slurm's commands, the forms of their output, and retries while the controller is unreachable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from torchx_kit.batch.entries import Entry
from torchx_kit.batch.errors import (
    BatchError,
    EndedError,
    LimitError,
    RefusedError,
    UnreachableError,
)
from torchx_kit.batch.states import JobInfo
from torchx_kit.batch.system import BatchSystem, NativeJob
from torchx_kit.hosts.api import CommandResult
from torchx_kit.hosts.errors import HostError
from torchx_kit.hosts.operations import Operation, ReadFiles, Run
from torchx_kit.jobs.arrays import ranges
from torchx_sched_slurm.job_files.records import SlurmEntry, SlurmRecord
from torchx_sched_slurm.jobs import (
    SACCT,
    SEPARATOR,
    SQUEUE,
    SlurmJob,
    cluster_options,
    mark_of_script,
    parse_job_id,
    parse_jobs,
    selector,
)
from torchx_sched_slurm.states import REASONS, STATES
from torchx_specs.model.app import Role
from torchx_specs.schedulers.api import DAYS_IN_2_WEEKS

#: How long the first query may take before `scontrol ping` queries the controllers' state, in
#: seconds. `squeue` itself tries an unreachable controller for MessageTimeout (10 s by default).
_FIRST_QUERY_SECONDS = 3.0
_PING_SECONDS = 3.0
# Slurm's default of MaxArraySize.
_DEFAULT_ARRAY_SIZE = 1001
# Parts of error messages about jobs that the controller does not know, and of those of a cluster
# without accounting, in lower case.
_UNKNOWN_JOB = ("invalid job id",)
_NO_ACCOUNTING = ("accounting storage is disabled", "no command sacct")

# The variables, without the command's name, by which users change what a command does. The manual
# pages of 22.05 and 24.11 list them. A filter of the user would hide jobs, so they are removed.
# SLURM_CLUSTERS stays, because it selects the cluster for all commands. sbatch keeps the defaults
# of the user, except these, which no job of TorchX can have, and those of options that are set
# (torchx_sched_slurm.options).
_REMOVED = {
    "squeue": "ACCOUNT ALL ARRAY ARRAY_UNIQUE FEDERATION FORMAT FORMAT2 LICENSES LOCAL NAMES"
    " PARTITION PRIORITY QOS SIB SIBLING SORT STATES USERS",
    "sacct": "FEDERATION FORMAT LOCAL",
    "scancel": "ACCOUNT BATCH CRON CTLD FULL HURRY INTERACTIVE NAME PARTITION QOS STATE USER"
    " VERBOSE WCKEY",
    "sinfo": "ALL FEDERATION FORMAT FUTURE LOCAL PARTITION SORT",
    "scontrol": "ALL FEDERATION FUTURE LOCAL SIB SIBLING",
    "sbatch": "ARRAY_INX NO_REQUEUE WAIT",
}
# The format of times in the output of queries: seconds since 1970, which have no time zone. Not for
# sbatch: its jobs would inherit the variable.
_TIMES = {"SLURM_TIME_FORMAT": "%s"}

# The beginning of a line with an error message.
_PREFIX = re.compile(
    r"(?m)^\s*(slurm_load_\w+ error: )?(s(batch|queue|acct|cancel|control|info|run): )?"
    r"(error: )?(fatal: )?"
)


# States of nodes that start no jobs; a state may be followed by flags, as in IDLE+DRAIN. Slurm
# starts a node that is powered down when a job needs it.
_CLOSED = re.compile(r"\bDOWN|DRAIN|FAIL|MAINT|NOT_RESPONDING|UNKNOWN|FUTURE")


class Slurm(BatchSystem):
    """Slurm; see :class:`torchx_kit.batch.system.BatchSystem`. An app is one job.

    If a controller has answered this client before, it is expected to come back, so queries are
    retried for ``patience`` seconds. Before the first answer, a query fails as soon as ``scontrol
    ping`` reports that all controllers are down. A slow controller does not make a query fail.
    """

    backend = "slurm"
    title = "Slurm"
    states = STATES
    reasons = REASONS
    has_tasks = True
    passes_environment = True
    # Those that are left out configure Slurm's commands.
    job_variables = r"(SBATCH_|SRUN_|SLURM_(?!(CONF|CONF_SERVER|CLUSTERS|JWT|TIME_FORMAT)$))\w*"
    is_atomic = True
    largest_array = 0
    cancels_all_elements = True

    not_installed = "Slurm is not installed: {error}; run this on a login node of the cluster"
    messages = {
        UnreachableError: (
            "unable to contact slurm controller",
            "connection refused",
            "connection timed out",
            "connect failure",
            "socket timed out",
            "zero bytes were transmitted",
            "transport endpoint is not connected",
            "connection reset by peer",
            "communication connection failure",
            "slurm temporarily unable to accept job",
            "slurm backup controller in standby",
            "resource temporarily unavailable",
        ),
        # QOSMaxSubmitJobPerUserLimit, AssocMaxSubmitJobLimit and others
        LimitError: ("submitjob", "job submit limit"),
        RefusedError: (
            r"invalid (?!job id|user id|auth|job credential|rpc)",
            "reservation is invalid",
            "unrecognized option",
            "is ambiguous",
            "requires an argument",
            "doesn't allow an argument",
            "mutually exclusive",
            "requested (node|partition) configuration",
            "requested time limit",
            "more processors requested",
            "node count specification invalid",
            "memory specification can not be satisfied",
            "dependency problem",
            "not permitted to use this (partition|account|qos)",
        ),
        EndedError: (*_UNKNOWN_JOB, "already finished", "already completing or completed"),
    }
    empty_messages = _UNKNOWN_JOB
    command_env = {
        name: {
            **dict.fromkeys(f"{name.upper()}_{word}" for word in words.split()),
            **(_TIMES if name in ("squeue", "sacct") else {}),
        }
        for name, words in _REMOVED.items()
    }

    #: Whether a controller has answered this client.
    _has_answered = False
    #: Whether the cluster may have accounting.
    _has_accounting = True

    def options(self, role: Role, cfg: Any) -> list[str]:
        return []  # the script has them as directives

    def submission(self, job: NativeJob) -> tuple[list[str], bytes | None]:
        return ["sbatch", *job.options, f"--chdir={job.folder}", *job.argv], None

    def submission_command(self, job: NativeJob, env: Mapping[str, str | None]) -> Run:
        return replace(super().submission_command(job, env), timeout=self.timeout)

    def parse_job_id(self, output: str) -> str:
        lines = [line.strip() for line in output.split("\n") if line.strip()]
        return (parse_job_id(lines[-1]) if lines else None) or ""

    def submit_jobs(
        self, files: Sequence[Operation], commands: Sequence[Run], once: str
    ) -> list[str]:
        """Submit a job exactly once, and return its id.

        If sbatch gets no answer, the controller may still have accepted the job. So search the
        queue for a script's path with the mark, and submit the job again only if no job has it.
        """
        mark = mark_of_script(commands[0].argv[-1])
        backoff = self._backoff()
        for attempt in count():
            try:
                return super().submit_jobs(files, commands, f"{once}-{attempt}")
            except UnreachableError as e:
                import logging  # imported here, so that start-up does not load it

                logging.getLogger(__name__).warning(
                    "%s; retrying for at most %g s", e, self.patience
                )
                backoff.pause_after(e)
            self._has_answered = True  # the controller is expected to come back
            number = _numbers(self.listing(None)[0].values()).get(mark)
            if number:
                return [number]
        raise AssertionError("unreachable")

    def add_job_ids(self, entries: Iterable[Entry], jobs: Iterable[JobInfo]) -> None:
        numbers = _numbers(jobs)
        for entry in entries:
            if isinstance(entry, SlurmEntry) and entry.is_announced:
                record = SlurmRecord(self.host, entry.record)
                entry.roles[0].jobs = [numbers.get(entry.mark) or record.job_number()]

    def listing_argv(self, job_ids: Sequence[str] | None) -> list[str]:
        argv = ["squeue", "-h", "-t", "all", "-o", SEPARATOR.join(SQUEUE), "--array"]
        if job_ids is None:
            return [*argv, "-u", self.host.user()]
        numbers = [selector(job_id).partition("_")[0] for job_id in job_ids]
        return [*argv, *cluster_options(job_ids[0]), "-j", ",".join(numbers)]

    def parse_listing(self, output: str) -> Iterator[SlurmJob]:
        return parse_jobs(output, SQUEUE)

    def listing(
        self, job_ids: Sequence[str] | None, reads: Sequence[ReadFiles] = ()
    ) -> tuple[dict[str, JobInfo], list[dict[str, bytes]]]:
        jobs, files = super().listing(job_ids, reads)
        return _of_cluster(jobs.values(), job_ids), files

    def explain(self, jobs: Sequence[JobInfo]) -> Mapping[str, JobInfo]:
        ids = [job.job_id for job in jobs]
        selection = (*cluster_options(ids[0]), "-j", ",".join(map(selector, ids)))
        return _of_cluster(self._accounting(*selection), ids)

    def recent_jobs(self) -> dict[str, JobInfo]:
        """Return the user's jobs of the last two weeks in accounting, by id."""
        start = f"now-{DAYS_IN_2_WEEKS}days"
        return _of_cluster(self._accounting("-u", self.host.user(), "-S", start), None)

    def _accounting(self, *selection: str) -> list[SlurmJob]:
        """Return jobs from accounting; none if the query fails, because others know more."""
        if not self._has_accounting:
            return []
        argv = ["sacct", "-X", "-n", "-P", f"--delimiter={SEPARATOR}", "-o", ",".join(SACCT)]
        try:
            return list(parse_jobs(self.run(*argv, *selection), SACCT, is_queued=False))
        except BatchError as e:
            self._has_accounting = not any(text in str(e).lower() for text in _NO_ACCOUNTING)
            return []

    def cancel(self, job_ids: Sequence[str]) -> None:
        for _, ids in groupby(sorted(job_ids, key=cluster_options), cluster_options):
            super().cancel(list(ids))

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        words = []
        tasks: dict[str, list[int]] = {}
        for job_id in map(selector, job_ids):
            number, _, task = job_id.partition("_")
            if task:
                tasks.setdefault(number, []).append(int(task))
            else:
                words.append(number)
        words += [f"{number}_[{ranges(own)}]" for number, own in tasks.items()]
        return ["scancel", *cluster_options(job_ids[0]), *words]

    def max_array_size(self) -> int:
        output = self.run_idempotent("scontrol", "show", "config")
        match = re.search(r"^MaxArraySize\s*=\s*(\d+)", output, re.M)
        return int(match[1]) if match else _DEFAULT_ARRAY_SIZE

    def is_ours(self, job: JobInfo) -> bool:
        return isinstance(job, SlurmJob) and bool(job.mark)

    def job_of_replica(self, entry: Entry, role: int, k: int) -> str:
        return entry.app_id  # a task of an array, too

    def batch(
        self, operations: Sequence[Operation], *, is_safe: bool = False, once: str = ""
    ) -> list[Any]:
        """Execute operations of the host in one request; see the class for retries of queries."""
        if is_safe and not self._has_answered:
            seconds = min(_FIRST_QUERY_SECONDS, self.timeout)
            first = [
                replace(one, timeout=seconds) if isinstance(one, Run) else one for one in operations
            ]
            try:
                return self._execute(first, is_safe)
            except UnreachableError as e:
                state = self._ping(next(one.argv for one in operations if isinstance(one, Run)))
                if "is DOWN" in state and "is UP" not in state:
                    raise UnreachableError(f"{e} (scontrol ping: {state})") from None
        return super().batch(operations, is_safe=is_safe, once=once)

    def _ping(self, argv: Sequence[str]) -> str:
        """Return the state of the controllers as ``scontrol ping`` prints it; empty if unknown.

        Args:
            argv: The query; its option ``--clusters`` selects the cluster.
        """
        at = argv.index("--clusters") if "--clusters" in argv else len(argv)
        try:
            result = self.host.run(
                ("scontrol", *argv[at : at + 2], "ping"),
                timeout=_PING_SECONDS,
                env=self.command_env["scontrol"],
            )
        except HostError:
            return ""
        lines = (line.strip() for line in result.stdout.splitlines())
        return "; ".join(line for line in lines if line.startswith("Slurmctld("))

    def _output(self, name: str, result: CommandResult, allow_empty: bool) -> str:
        output = super()._output(name, result, allow_empty)
        if name != "sacct":  # sacct queries the accounting daemon instead
            self._has_answered = True
        return output

    def error_summary(self, output: str) -> str:
        r"""Return the error messages in one line, without duplicates and prefixes.

        >>> Slurm().error_summary("sbatch: error: a\nsbatch: error: a\nsbatch: error: job: b")
        'a; job: b'
        """
        return super().error_summary(_PREFIX.sub("", output))


def _numbers(jobs: Iterable[JobInfo]) -> dict[str, str]:
    """Return the numbers of jobs by the mark of their submission."""
    whole = (job for job in jobs if isinstance(job, SlurmJob) and "_" not in job.job_id)
    return {job.mark: job.job_id for job in whole}


def _of_cluster(jobs: Iterable[JobInfo], job_ids: Sequence[str] | None) -> dict[str, JobInfo]:
    """Return jobs by their ids, to which the cluster of the given ids is added."""
    at, cluster = (job_ids[0] if job_ids else "").partition("@")[1:]
    return {f"{job.job_id}{at}{cluster}": job for job in jobs}


def parse_nodes(output: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the GPUs of each node, those in use, and whether the node can start jobs.

    >>> list(parse_nodes("NodeName=n Gres=gpu:a:4(S:0-1) GresUsed=gpu:a:1(IDX:0) State=MIXED"))
    [(4, 1, True)]

    Args:
        output: Output of ``scontrol --details --oneliner show nodes``.
    """
    for line in output.splitlines():
        fields = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        if "NodeName" in fields:
            state = fields.get("State", "UNKNOWN")
            is_open = not _CLOSED.search(state) and "*" not in state
            yield _gpus(fields.get("Gres", "")), _gpus(fields.get("GresUsed", "")), is_open


def _gpus(gres: str) -> int:
    """Return the number of GPUs in a list of generic resources.

    >>> _gpus("gpu:a100:4(S:0-1),gpu:2(IDX:0,1),shard:8"), _gpus("(null)")
    (6, 0)
    """
    return sum(map(int, re.findall(r"(?:^|,)gpu(?::[^:,()]+)??:(\d+)(?=[(,]|$)", gres)))
