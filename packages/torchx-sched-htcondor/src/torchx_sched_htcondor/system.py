"""HTCondor's commands, and the forms of their output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from torchx_kit.hosts.operations import ReadFiles
from torchx_kit.times import moment
from torchx_sched_htcondor.options import HTCondorOpts, command_name
from torchx_sched_htcondor.states import CAUSES, STATES, cause_of, state_name
from torchx_specs.model.app import Role

_ATTRIBUTES = (
    "ClusterId,ProcId,JobBatchName,JobStatus,QDate,EnteredCurrentStatus,RemoteHost,LastRemoteHost"
    ",NumShadowStarts,JobStartDate,JobCurrentStartDate,JobDisconnectedDate,HoldReason"
    ",HoldReasonCode,LastRejMatchReason,VacateReason,VacateReasonCode,RemoveReason,ExitCode"
    ",ExitBySignal,ExitSignal"
)
_FACTORY = "ClusterId,JobBatchName,JobMaterializeNextProcId,TotalSubmitProcs,QDate"
# Why HTCondor has ended an attempt, by VacateReasonCode, if VacateReason is empty.
_VACATED = {1005: "preempted", 1008: "its machine did not answer"}
# HTCondor sends the signal to the script alone.
_ON_SIGNAL = "    trap '' TERM; kill -TERM 0; trap tx_on_signal TERM"


class HTCondor(BatchSystem):
    """HTCondor. Each role is a cluster of jobs, one for each replica."""

    backend = "htcondor"
    title = "HTCondor"
    states = STATES
    causes = CAUSES
    has_tasks = True
    hold_option = "hold = True"
    requeue_options = (f"on_exit_remove = ExitCode =!= {EXIT_AGAIN}",)
    # getenv=True fails for values that are not UTF-8, and others see the variables of a job.
    passes_environment = False
    # They can change each setting of a command. Those that are left out name the pool.
    ignored_variables = r"_CONDOR_(?!(SCHEDD|COLLECTOR)_HOST$).*"
    job_variables = rf"{ignored_variables}|BATCH_SYSTEM|TMPDIR|TMP|TEMP"
    script = ScriptParts(task='"$2"', signals="INT TERM", on_signal=_ON_SIGNAL)
    array_size = 2000
    first_task = 0

    not_installed = "HTCondor is not installed: {error}; run this on an access point of the pool"
    messages = {
        UnreachableError: (
            "cedar:6001",
            "secman:2007",
            "failed to connect to",
            "failed to fetch ads",
            "communication error",
            "unable to send history command",
            "can't find address",
        ),
        LimitError: ("max_jobs_per_owner", "max_jobs_per_submission"),
        RefusedError: (
            "i don't know about the",
            "parse error in expression",
            "no such directory",
            "is invalid, must eval",
            "failed to commit job submission",
            "is it a typo",
        ),
        EndedError: (
            "couldn't find/",
            "already marked for removal",
            "not held to be released",
            "not found",
            "no jobs in the queue",
        ),
    }
    empty_messages = ("no jobs in the queue",)

    def options(self, role: Role, cfg: HTCondorOpts) -> list[str]:
        resource = role.resource
        derived = {
            "request_cpus": resource.cpu if resource.cpu > 0 else None,
            "request_memory": resource.memMB if resource.memMB > 0 else None,
            "request_gpus": resource.gpu if resource.gpu > 0 else None,
            "accounting_group": cfg.accounting_group,
            "requirements": cfg.requirements,
        }
        if cfg.seconds:
            run_time = "JobStatus == 2 && time() - JobCurrentStartDate > "
            derived["periodic_remove"] = f"{run_time}{cfg.seconds}"
        own = set(map(command_name, cfg.extra or ()))
        lines = [
            f"{name} = {value}"
            for name, value in derived.items()
            if value is not None and name not in own
        ]
        return [*lines, *(cfg.extra or ())]

    def submission(self, job: NativeJob) -> tuple[list[str], bytes | None]:
        if job.previous:
            raise LimitError(
                f"HTCondor cannot start an array after {job.previous} has ended; submit the other"
                " apps then"
            )
        arguments = " ".join(_argument(word) for word in job.argv[1:])
        lines = [
            "universe = vanilla",
            "should_transfer_files = NO",
            f"executable = {job.argv[0]}",
            f'arguments = "{arguments} $(ProcId)"',
            f"initialdir = {_text(job.folder)}",
            f"batch_name = {_text(job.name)}",
            *job.options,
            *([f"max_materialize = {job.limit}"] if job.limit else []),
            *(["hold = True"] if job.is_held else []),
            f"queue {job.tasks}",
        ]
        text = "".join(f"{line}\n" for line in lines)
        return ["condor_submit", "-terse", "-"], text.encode("utf-8", "surrogateescape")

    def parse_job_id(self, output: str) -> str:
        # such as "17.0 - 17.2"
        found = re.search(r"^(\d+)\.\d+ - \d+\.\d+$", output, re.M)
        return found[1] if found else ""

    # By default, condor_q lists only jobs of the caller, whose name may differ in the pool.

    def listing_argv(self, job_ids: Sequence[str] | None) -> list[str]:
        return ["condor_q", "-json", "-attributes", _ATTRIBUTES, *(job_ids or ())]

    def listing(
        self, job_ids: Sequence[str] | None, reads: Sequence[ReadFiles] = ()
    ) -> tuple[dict[str, JobInfo], list[dict[str, bytes]]]:
        # HTCondor makes the jobs of a cluster with a limit one after another.
        factories = ["condor_q", "-factory", "-json", "-attributes", _FACTORY, *(job_ids or ())]
        queries = [self.command(self.listing_argv(job_ids)), self.command(factories)]
        output, made, *files = self.batch([*queries, *reads], is_safe=True)
        found = {job.job_id: job for job in self.parse_listing(output)}
        for ad in _ads(made):
            cluster = ad["ClusterId"]
            for index in range(ad.get("JobMaterializeNextProcId", 0), ad["TotalSubmitProcs"]):
                job_id = self.task_id(str(cluster), index)
                name, submitted = ad.get("JobBatchName", ""), moment(ad.get("QDate"))
                found[job_id] = JobInfo(job_id, name, "not made yet", submitted=submitted)
        return found, files

    def parse_listing(self, output: str) -> Iterator[JobInfo]:
        for ad in _ads(output):
            state = state_name(ad)
            cause = cause_of(ad)
            attempts = ad.get("NumShadowStarts") or 0
            has_ended = self.states[state].phase.has_ended if state in self.states else False
            host = ad.get("RemoteHost") or (ad.get("LastRemoteHost") if has_ended else "")
            started = ad.get("JobStartDate") if has_ended else ad.get("JobCurrentStartDate")
            exit_code = ad.get("ExitCode")
            if ad.get("ExitBySignal"):
                exit_code = -ad.get("ExitSignal", 0)
            yield JobInfo(
                f"{ad['ClusterId']}.{ad['ProcId']}",
                ad.get("JobBatchName") or "",
                state,
                str(host or "").rpartition("@")[2],
                _reason(ad, state, attempts),
                cause,
                exit_code if has_ended else None,
                was_requeued=attempts > 0,
                submitted=moment(ad.get("QDate")),
                started=None if state == "idle" else moment(started),
                ended=moment(ad.get("EnteredCurrentStatus")) if has_ended else None,
            )

    def explain(self, jobs: Sequence[JobInfo]) -> Mapping[str, JobInfo]:
        found = {job.job_id: job for job in jobs if job.state}
        missing = [job.job_id for job in jobs if not job.state]
        for start in range(0, len(missing), self.most_ids):
            ids = missing[start : start + self.most_ids]
            argv = ["condor_history", "-json", "-attributes", _ATTRIBUTES, *ids]
            try:
                ended = self.parse_listing(self.run_idempotent(*argv))
                found |= {job.job_id: job for job in ended}
            except BatchError:  # the history may be on another machine
                break
        return found

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        return ["condor_rm", *job_ids]

    def release_argv(self, job_ids: Sequence[str]) -> list[str]:
        return ["condor_release", *job_ids]


def _text(value: str) -> str:
    """Return a value of a submit description, in which ``$`` would begin a macro."""
    return value.replace("$", "$(DOLLAR)")


def _argument(word: str) -> str:
    """Return an argument of a job, quoted for the command ``arguments``."""
    quoted = word.replace("'", "''").replace('"', '""')
    return f"'{_text(quoted)}'"


def _ads(output: str) -> list[dict[str, Any]]:
    """Return the jobs in JSON output; HTCondor prints nothing if there are none.

    Raises:
        BatchError: The output is not JSON.
    """
    try:
        return list(json.loads(output.strip() or "[]"))
    except ValueError as e:
        raise BatchError(f"HTCondor printed no JSON: {e}; see condor_q -json") from None


def _reason(ad: Mapping[str, Any], state: str, attempts: int) -> str:
    """Return why a job waits or was removed, in HTCondor's words; empty if unknown."""
    if state.startswith("held"):
        is_user = state == "held"
        return "" if is_user else str(ad.get("HoldReason") or "")
    if state == "idle" and attempts:
        code = ad.get("VacateReasonCode")
        return str(ad.get("VacateReason") or _VACATED.get(code or 0, ""))
    if state == "idle":
        return str(ad.get("LastRejMatchReason") or "").strip()
    return str(ad.get("RemoveReason") or "") if state == "removed" else ""
