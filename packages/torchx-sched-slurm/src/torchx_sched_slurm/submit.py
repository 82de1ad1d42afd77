"""Submitting a job once, whatever happens on the way."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace

from torchx_kit.atomic_files import write_atomically
from torchx_kit.names.ids import random_id
from torchx_sched_slurm import queries, records
from torchx_sched_slurm.client import Slurm, SlurmError, UnreachableError
from torchx_sched_slurm.request import SlurmBatchRequest
from torchx_specs.errors import BackendError, RequestError

_MEMORY = "memory specification can not be satisfied"
# What a partition has whose nodes' memory nobody has configured.
_NO_MEMORY_MB = 1000

logger = logging.getLogger(__name__)


def submit(slurm: Slurm, request: SlurmBatchRequest) -> tuple[str, str, str]:
    """Submits a job.

    Returns:
        its id, its working directory and the path of its record

    Raises:
        SlurmError: Slurm refuses it or cannot be reached
        RequestError: the job's folder cannot be written to
    """
    mark = random_id(12)
    folder = _job_folder(request)
    request = replace(request, record=records.record_of(folder, mark))
    record, path = records.make_record(folder, mark, request.materialize())
    try:
        command = _command(request, folder, mark)
        try:
            job_id = _submit_once(slurm, [*command, path], mark)
        except SlurmError as e:
            if _MEMORY not in str(e).lower() or not _manages_no_memory(slurm, request):
                raise
            logger.warning("this partition's memory is not managed: asking for none")
            write_atomically(path, _without_memory(request).materialize())
            job_id = _submit_once(slurm, [*command, path], mark)
    except UnreachableError:
        raise  # it may have been taken, and then needs its record
    except BaseException:
        records.remove_record(record)
        raise
    if request.job_dir:
        _note_folder(job_id, folder)
    return job_id, folder, record


def _job_folder(request: SlurmBatchRequest) -> str:
    if not request.job_dir:
        return os.getcwd()
    folder = os.path.abspath(os.path.expanduser(request.job_dir))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as e:
        raise RequestError(f"cannot make job_dir {folder}: {e.strerror or e}") from None
    return folder


def _command(request: SlurmBatchRequest, folder: str, mark: str) -> list[str]:
    comment = None
    command = []
    for word in request.cmd:
        if word.startswith("--comment="):
            comment = word.partition("=")[2]
        else:
            command.append(word)
    command.append(f"--comment={queries.mark_in(comment, mark)}")
    return [*command, f"--chdir={folder}"]


def _submit_once(slurm: Slurm, command: list[str], mark: str) -> str:
    deadline = time.monotonic() + slurm.patience
    pause = 0.5
    while True:
        try:
            lines = slurm.run(*command).split("\n")
            break
        except UnreachableError as e:
            error = e
        # it may have been taken all the same: its mark in the queue tells
        while True:
            if time.monotonic() + pause > deadline:
                raise UnreachableError(
                    f"{error}; tried for {slurm.patience:g} s. Should Slurm have taken the job all"
                    f" the same, squeue -o '%i %k' shows it with the comment torchx:{mark}"
                )
            logger.warning("%s; trying again", error)
            slurm.sleep(pause)
            pause = min(pause * 2, 8.0)
            try:
                found = _find(slurm, mark)
                break
            except UnreachableError as e:
                error = e
        if found:
            return found
    job_id = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if queries.JobId.parse(job_id) is None:
        raise BackendError(f"sbatch has printed no job id: {' '.join(lines).strip()!r}")
    return job_id


def _find(slurm: Slurm, mark: str) -> str:
    """Returns the id of the job with that mark, an empty string if there is none."""
    out = slurm.run("squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-o", "%i %k")
    for line in out.split("\n"):
        if line.endswith(f"torchx:{mark}"):
            return line.split()[0].partition("+")[0]
    return ""


def _manages_no_memory(slurm: Slurm, request: SlurmBatchRequest) -> bool:
    partitions = {role.sbatch_opts.get("partition") for role in request.replicas.values()}
    memory: dict[str | None, int] = {}
    for line in slurm.run("sinfo", "-h", "--noconvert", "-o", "%P,%m").split():
        name, _, size = line.partition(",")
        digits = size.rstrip("+")
        if digits.isdigit():
            memory[name.rstrip("*")] = int(digits)
            if name.endswith("*"):
                memory[None] = int(digits)
    return all(memory.get(name, _NO_MEMORY_MB + 1) <= _NO_MEMORY_MB for name in partitions)


def _without_memory(request: SlurmBatchRequest) -> SlurmBatchRequest:
    roles = {}
    for key, role in request.replicas.items():
        opts = {name: value for name, value in role.sbatch_opts.items() if name != "mem"}
        roles[key] = replace(role, sbatch_opts=opts)
    return replace(request, replicas=roles)


def _note_folder(job_id: str, folder: str) -> None:
    try:
        records._save_job_dir(job_id, folder)
    except OSError as e:
        logger.warning(
            "cannot add to %s here: %s; older tools won't find the job's folder",
            records.SLURM_JOB_DIRS,
            e.strerror or e,
        )
