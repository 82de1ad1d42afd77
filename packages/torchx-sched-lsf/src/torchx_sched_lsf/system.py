"""LSF's commands, and the forms of their output."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from torchx_kit.batch.errors import (
    BatchError,
    EndedError,
    LimitError,
    RefusedError,
    UnreachableError,
)
from torchx_kit.batch.script import EXIT_AGAIN
from torchx_kit.batch.states import JobInfo
from torchx_kit.batch.system import BatchSystem, NativeJob, ScriptParts
from torchx_kit.hosts.operations import ReadFiles, Run
from torchx_sched_lsf.long_form import parse_long_form
from torchx_sched_lsf.options import LsfOpts
from torchx_sched_lsf.states import CAUSES, REASONS, STATES
from torchx_specs.model.app import Role

T = TypeVar("T")

# Kills the other jobs of the app. Without ids, bkill would kill the user's last job.
_KILL_OTHERS = """\
[ "${#tx_roles[@]} $tx_count" = "1 1" ] || tx_others=$(
    bjobs -w -J "$tx_app-*" 2> /dev/null < /dev/null |
        sed -n "/^$LSB_JOBID /d; s/^\\([0-9][0-9]*\\) .*/\\1/p")
[ -z "${tx_others-}" ] || bkill $tx_others > /dev/null 2>&1 < /dev/null"""
# At a memory limit, LSF sends the same signals as bkill and brequeue. A replica that receives them
# cannot know the reason, because bjobs shows the reason only after the end of the job. So another
# replica queries it; of all replicas, the one that renames the file does. A replica that runs and
# finds its own file was requeued.
_AFTER_SIGNAL = """\
echo "$tx_n $tx_k $tx_host $tx_code $LSB_JOBID" > "$tx_record/signal-$tx_n-$tx_k\""""
_WATCH = f"""\
[ ! -e "$tx_record/signal-$tx_n-$tx_k" ] || rm -f "$tx_record/signal-$tx_n-$tx_k"
for tx_file in "$tx_record"/signal-*; do
    [ -e "$tx_file" ] || break
    mv "$tx_file" "$tx_record/seen-$tx_n-$tx_k" 2> /dev/null || continue
    read -r tx_a tx_b tx_c tx_d tx_e < "$tx_record/seen-$tx_n-$tx_k"
    for ((tx_i = 0; tx_i < 60; tx_i++)); do
        case $(bjobs -l "$tx_e" 2> /dev/null < /dev/null | tr -d ' \\n') in
            *'Status<EXIT>'*TERM_*OWNER* | *'Status<EXIT>'*TERM_*ADMIN*) break ;;
            *'Status<EXIT>'*)
                (set -C && echo "$tx_a $tx_b $tx_c $tx_d" > "$tx_record/failed") 2> /dev/null
                {_KILL_OTHERS}
                break
                ;;
            *'Status<DONE>'* | *'Status<PEND>'* | *'Status<PSUSP>'*) break ;;
        esac
        sleep 1
    done
done"""

# The first versions of bsub with units of memory, and with "/host".
_WITH_UNITS = (10, 1, 0, 2)
_WITH_HOST = (10, 1, 0, 9)
_UNITS = {"KB": 1 / 1024, "MB": 1.0, "GB": 1024.0, "TB": 1024.0**2}
# LSF's default of MAX_JOB_ARRAY_SIZE, for clusters whose bparams does not print the parameter.
_DEFAULT_SIZE = 1000

_UNKNOWN_OPTION = ("illegal option", "invalid option", "usage")


class Lsf(BatchSystem):
    """IBM Spectrum LSF, and systems with its commands. Each replica is a job."""

    backend = "lsf"
    title = "LSF"
    states = STATES
    causes = CAUSES
    reasons = REASONS
    has_tasks = False
    passes_environment = True  # bjobs shows the variables to the owner of the job only
    folder_option = "jobdir"
    hold_option = "-H"
    requeue_options = ("-r", "-Q", str(EXIT_AGAIN))
    # BSUB_QUIET and BSUB_STDERR hide the id of the job; with BSUB_CHK_RESREQ, bsub submits no job.
    job_variables = (
        r"BSUB_\w+|LS_\w+|LSB_(AFFINITY|BATCH|BIND|CHKPNT|DJOB|EFFECTIVE|ERRORFILE|EXEC|EXIT|HOSTS"
        r"|INTERACTIVE|JOB|MAX_NUM|MCPU|NTRIES|OUT|PROJECT_NAME|QUEUE|RES|SUB|TRAPSIGS|XFER)\w*"
    )
    script = ScriptParts(
        task="$((LSB_JOBINDEX - 1))",
        signals="INT TERM USR2 XCPU",
        after_failure=_KILL_OTHERS,
        after_signal=_AFTER_SIGNAL,
        watch=_WATCH,
    )

    not_installed = (
        "LSF is not installed: {error}; run this on a login host of"
        " the cluster, with LSF's profile sourced"
    )
    messages = {
        UnreachableError: (
            "lsf is down",
            "lim is down",
            "please wait",
            "cannot connect",
            "communication",
            "not responding",
        ),
        RefusedError: (
            "no such queue",
            "use the queue",
            "used by the queue",
            "queue has been closed",
            "queue does not",
            "queue only",
            "project",
            "esub",
            "requirement",
            "illegal option",
            "invalid option",
            "bad job name",
            "bad host name",
            "dependency",
            "too many processors",
            "cannot exceed",
            "unknown user",
            "job array index error",
        ),
        LimitError: ("threshold reached", "job array index too large", "no job id can be used"),
        EndedError: (
            "already finished",
            "already completed",
            "not found",
            "no matching job",
            "not started",
            "not suspended",
        ),
    }
    empty_messages = ("is not found", "no job found", "no unfinished job found", "no matching job")
    env = {"LC_ALL": "C"}  # the output is parsed, so it must not be translated
    command_env = {"bjobs": {"TZ": "UTC0"}}  # bjobs prints times without a zone

    _version: tuple[int, ...] = _WITH_HOST
    _unit = "MB"
    _is_old = False  # whether bjobs has neither -o nor -UF

    def prepare(self) -> None:
        """Query the version of bsub, and the unit of memory that an old version expects."""
        with self._host_errors():
            result = self.host.run(("bsub", "-V"), timeout=self.timeout)
        found = re.search(r"LSF\D*(\d+)\.(\d+)\.(\d+)\.(\d+)", result.stderr + result.stdout)
        self._version = tuple(map(int, found.groups())) if found else (0,)
        if self._version < _WITH_UNITS:
            with self._host_errors():
                config = self.host.run(("/bin/sh", "-c", 'cat "${LSF_ENVDIR:-/etc}/lsf.conf"'))
            form = r'^\s*LSF_UNIT_FOR_LIMITS\s*=\s*"?([KMGT]B)'
            self._unit = (re.findall(form, config.stdout, re.M) or ["MB"])[-1]

    def options(self, role: Role, cfg: LsfOpts) -> list[str]:
        resource = role.resource
        values = {
            "-P": cfg.project,
            "-q": cfg.lsf_queue,
            "-W": cfg.time_limit,
            "-w": cfg.dependency,
        }
        options = [word for key, value in values.items() if value for word in (key, value)]
        if resource.cpu > 0:
            options += ["-n", str(resource.cpu)]
        per_host = "/host" if self._version >= _WITH_HOST else ""
        requirement = "span[hosts=1]"
        if resource.memMB > 0:
            memory = f"{resource.memMB}MB{per_host}"
            if self._version < _WITH_UNITS:
                memory = str(math.ceil(resource.memMB / _UNITS[self._unit]))
            requirement += f" rusage[mem={memory}]"
        options += ["-R", requirement]
        if resource.gpu > 0:
            options += ["-gpu", f"num={resource.gpu}{per_host}:mode=shared:j_exclusive=yes"]
        return [*options, *(cfg.extra or ())]

    def submission(self, job: NativeJob) -> tuple[list[str], bytes | None]:
        name, log, options = job.name, job.log, list(job.options)
        line = f"exec {shlex.join(job.argv)}\n"
        if job.tasks:
            name += f"[1-{job.tasks}]" + ("" if job.limit is None else f"%{job.limit}")
            log += ".%I"
            line = f"unset LSB_NTRIES; {line}"
        condition = f"ended({job.previous})" if job.previous else ""
        if job.first:
            condition = f'started("{job.first}")'
        if condition and "-w" in options:
            at = options.index("-w") + 1
            options[at] = f"({options[at]}) && {condition}"
        elif condition:
            options += ["-w", condition]
        argv = ["bsub", *([self.hold_option] if job.is_held else []), "-J", name]
        argv += ["-o", f"{log}.out", "-e", f"{log}.err", *options]
        return argv, line.encode("utf-8", "surrogateescape")

    def submission_command(self, job: NativeJob, env: Mapping[str, str | None]) -> Run:
        # While too many jobs are pending, bsub would try again without end. A sweep submits a
        # smaller array instead. bsub itself retries while LSF does not answer.
        if job.tasks:
            env = {**env, "LSB_NTRIES": "1"}
        return super().submission_command(job, env)

    def parse_job_id(self, output: str) -> str:
        found = re.search(r"Job <(\d+)> is submitted", output)
        return found[1] if found else ""

    def task_id(self, job_id: str, index: int) -> str:
        return f"{job_id}[{index + 1}]"

    def max_array_size(self) -> int:
        try:
            output = self.run_idempotent("bparams", "-a")
        except UnreachableError:
            raise
        except BatchError:
            # An old version, or another system, has no bparams. If the default is too large, bsub
            # refuses the array, and a smaller one is submitted.
            output = ""
        found = re.search(r"^\s*MAX_JOB_ARRAY_SIZE\s*=\s*(\d+)", output, re.M)
        return int(found[1]) if found else _DEFAULT_SIZE

    def listing(
        self, job_ids: Sequence[str] | None, reads: Sequence[ReadFiles] = ()
    ) -> tuple[dict[str, JobInfo], list[dict[str, bytes]]]:
        if job_ids is not None and not job_ids:  # without ids, bjobs lists all jobs
            return {}, self.batch(reads) if reads else []
        list_jobs = super().listing
        return self._bjobs(lambda: list_jobs(job_ids, reads))

    def _bjobs(self, query: Callable[[], T]) -> T:
        """Return the result of a query; repeat the query if bjobs lacks the options of today."""
        was_old = self._is_old  # another thread may find it out
        try:
            return query()
        except BatchError as e:
            if was_old or not any(text in str(e).lower() for text in _UNKNOWN_OPTION):
                raise
        self._is_old = True
        return query()

    def listing_argv(self, job_ids: Sequence[str] | None) -> list[str]:
        form = ["-w"] if self._is_old else ["-o", "jobid stat exec_host job_name"]
        return ["bjobs", "-a", *form, *(job_ids or ())]

    def parse_listing(self, output: str) -> Iterator[JobInfo]:
        is_listing = not output.strip() or "JOBID" in output or self.is_empty(output)
        for line in output.splitlines():
            row = line.split()
            job_id = re.fullmatch(r"(\d+)(\[\d+\])?", row[0]) if row else None
            if job_id is None or len(row) < (9 if self._is_old else 4):
                continue
            is_listing = True
            if self._is_old:
                # bjobs -w prints nothing for an empty column, such as the host of a pending job.
                # The last columns are the name, and the time of the submission in three words.
                state, host, name = row[2], row[5] if len(row) > 9 else "", row[-4]
            else:
                state, host, name = row[1], row[2], " ".join(row[3:])
            # The name of an element ends with its index. The id may lack it.
            index = re.search(r"\[\d+\]\Z", name)
            suffix = index[0] if index else ""
            number = job_id[1] + (job_id[2] or suffix)
            yield JobInfo(number, name.removesuffix(suffix), state, first_host(host))
        if not is_listing:
            raise BatchError(f"bjobs printed no list of jobs, but {output[:200]!r}")

    def explain(self, jobs: Sequence[JobInfo]) -> Mapping[str, JobInfo]:
        ids = [job.job_id for job in jobs]

        def query() -> str:
            form = "-l" if self._is_old else "-UF"
            parts = (ids[at : at + self.most_ids] for at in range(0, len(ids), self.most_ids))
            return "\n".join(self.run_idempotent("bjobs", form, *part) for part in parts)

        try:
            return parse_long_form(self._bjobs(query))
        except BatchError:
            return {}

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        return ["bkill", *job_ids]

    def release_argv(self, job_ids: Sequence[str]) -> list[str]:
        return ["bresume", *job_ids]


def first_host(text: str) -> str:
    """Return the first host in the column ``exec_host``.

    >>> first_host("4*host1:2*host2"), first_host("-")
    ('host1', '')
    """
    host = text.partition(":")[0].rpartition("*")[2]
    return "" if host == "-" else host
