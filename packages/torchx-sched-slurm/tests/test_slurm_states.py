"""Slurm's states and reasons."""

from __future__ import annotations

from torchx_sched_slurm import states
from torchx_sched_slurm.scheduler import (
    SLURM_STATES,
    appstate_from_slurm_state,
    get_appstate_from_job,
)
from torchx_specs import AppState


def test_pending_job_without_a_reason() -> None:
    assert states.explain_pending("None", "N/A") == "pending"


class TestUpstreamFunctions:
    def test_states(self) -> None:
        assert appstate_from_slurm_state("COMPLETED") == AppState.SUCCEEDED
        assert appstate_from_slurm_state("NO_SUCH") == AppState.UNKNOWN
        assert get_appstate_from_job({"job_state": "RUNNING"}) == AppState.RUNNING
        assert get_appstate_from_job({"job_state": ["PENDING", "x"]}) == AppState.PENDING
        assert SLURM_STATES["EXPEDITING"] == AppState.PENDING  # a state of newer versions
        assert SLURM_STATES["PREEMPTED"] == AppState.FAILED
