"""The logs of a replica: files beside the job."""

from __future__ import annotations

import os

from torchx_specs.errors import BackendError


def missing(paths: list[str], report: str) -> BackendError:
    """Returns an error for logs that aren't there; LSF's own report may say more."""
    text = f"no log at {paths[0]}: it was removed, or the replica never started"
    return BackendError(f"{text}; see {report}" if os.path.exists(report) else text)
