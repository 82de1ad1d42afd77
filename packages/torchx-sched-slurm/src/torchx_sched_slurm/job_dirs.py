"""The file ``.torchxslurmjobdirs``, in which upstream's TorchX looks up the directories of jobs.

The file is in the current directory of the user's machine, not on the cluster.
"""

from __future__ import annotations

import os

#: Name of the file; each line is ``<job id> = <directory>``.
SLURM_JOB_DIRS = ".torchxslurmjobdirs"


def _get_job_dirs(folder: str = "") -> dict[str, str]:
    """Return the directories of jobs by job id; malformed lines are skipped.

    Args:
        folder: The directory with the file (default: the current directory).
    """
    try:
        with open(
            os.path.join(folder, SLURM_JOB_DIRS), encoding="utf-8", errors="surrogateescape"
        ) as file:
            lines = file.read().split("\n")
    except OSError:
        return {}
    parts = (line.partition(" = ") for line in lines)
    return {job_id.strip(): job_dir for job_id, equals, job_dir in parts if equals}


def _save_job_dir(job_id: str, job_dir: str) -> None:
    """Append a job to the file in the current directory.

    The line is appended with a single write, so that concurrent submissions lose no lines.

    Args:
        job_id: The job's id.
        job_dir: The job's directory.

    Raises:
        OSError: The file cannot be written.
    """
    line = f"{job_id} = {job_dir}\n".encode("utf-8", "surrogateescape")
    fd = os.open(SLURM_JOB_DIRS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
