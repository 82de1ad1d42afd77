"""The logs of a replica: files beside the job."""

from __future__ import annotations

import os

from torchx_specs.errors import BackendError


def missing(paths: list[str], folder: str, job_number: str) -> BackendError:
    """Returns an error for logs that aren't there, with what the batch script has said instead."""
    text = f"no log at {paths[0]}: it was removed, or the replica never started"
    batch = os.path.join(folder, f"slurm-{job_number}.out")
    try:
        with open(batch, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file.read()[-4000:].split("\n") if line.strip()]
    except OSError:
        return BackendError(text)
    return BackendError(f"{text}; {batch} ends with: {lines[-1]}" if lines else text)
