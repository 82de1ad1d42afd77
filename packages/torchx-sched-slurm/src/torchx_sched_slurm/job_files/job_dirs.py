"""The file ``.torchxslurmjobdirs``, in which upstream's TorchX looks up the directories of jobs.

The file is in the current directory of the user's machine, not on the cluster.
"""

from __future__ import annotations

#: Name of the file with the directories of jobs; each line is ``<job id> = <directory>``.
SLURM_JOB_DIRS = ".torchxslurmjobdirs"


def job_dirs() -> dict[str, str]:
    """Return the directories of jobs by job id; empty if the file cannot be read.

    Malformed lines are skipped.
    """
    try:
        with open(SLURM_JOB_DIRS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError:
        return {}
    parts = (line.partition(" = ") for line in lines)
    return {job_id.strip(): job_dir for job_id, equals, job_dir in parts if equals}


def record_job_dir(app_id: str, job_dir: str) -> None:
    """Append a job to the file :data:`SLURM_JOB_DIRS`; log a warning if it cannot be written.

    The line is appended with a single write, so that concurrent submissions lose no lines.
    """
    line = f"{app_id.replace('@', ';')} = {job_dir}\n".encode("utf-8", "surrogateescape")
    try:
        with open(SLURM_JOB_DIRS, "ab", buffering=0) as file:
            file.write(line)
    except OSError as e:
        import logging  # imported here, so that start-up does not load it

        logging.getLogger(__name__).warning(
            "cannot write %s: %s; earlier versions of TorchX will not find the job's logs",
            SLURM_JOB_DIRS,
            e.strerror or e,
        )
