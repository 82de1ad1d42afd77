"""Names of ``slurm_scheduler`` in older TorchX releases. TorchX itself needs none of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from torchx_kit.batch.errors import BatchError
from torchx_sched_slurm.states import appstate_from_slurm_state
from torchx_sched_slurm.system import Slurm
from torchx_specs.model.status import AppState


def get_appstate_from_job(job: Mapping[str, object]) -> AppState:
    """Return the AppState of a job in squeue's JSON; ``job_state`` is a string or a list."""
    state = job.get("job_state")
    if isinstance(state, (list, tuple)):
        state = state[0] if state else ""
    return appstate_from_slurm_state(str(state or ""))


def version() -> tuple[int, int]:
    """Return major and minor version of Slurm on this machine: ``(24, 5)`` for 24.05.

    Without Slurm, log a warning and return ``(24, 5)``.
    """
    try:
        output = Slurm(timeout=10.0).run("sinfo", "--version")
        match = re.search(r"(\d+)\.(\d+)", output)
        if match is None:
            raise BatchError(f"sinfo --version printed no version, but {output.strip()!r}")
    except BatchError as e:
        logging.getLogger(__name__).warning("assuming Slurm 24.05: %s", e)
        return 24, 5
    return int(match[1]), int(match[2])
