"""Hint for a missing replica log: the last line of the batch script's log."""

from __future__ import annotations

import posixpath

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostFileError

_TAIL_CHARACTERS = 4000


def batch_log_hint(host: Host, folder: str, job_number: str) -> str:
    """Return the path and the last line of the batch script's log.

    Return an empty string if the log is missing or empty.

    Args:
        host: The machine with the job's files.
        folder: The job's working directory.
        job_number: The job's number.
    """
    path = posixpath.join(folder, f"slurm-{job_number}.out")
    try:
        text = host.read_text(path)
    except HostFileError:
        return ""
    lines = [line.strip() for line in text[-_TAIL_CHARACTERS:].split("\n") if line.strip()]
    return f"{path} ends with: {lines[-1]}" if lines else ""
