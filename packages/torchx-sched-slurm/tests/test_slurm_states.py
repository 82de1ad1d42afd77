"""Slurm's states and reasons."""

from __future__ import annotations

import pytest

from torchx_kit.jobs.pending_reasons import explained
from torchx_sched_slurm import states
from torchx_sched_slurm.scheduler import (
    SLURM_STATES,
    appstate_from_slurm_state,
)
from torchx_specs import AppState


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("Resources", "the resources that the job needs are in use"),
        ("Priority", "other jobs come first"),
        ("QOSMaxGRESPerUser", "a limit of your account, queue or quality of service is reached"),
        ("QOSMaxJobsPerUserLimit", "a limit of your account, queue or quality of service is"),
        ("AssocGrpCpuLimit", "a limit of your account, queue or quality of service is reached"),
        ("AssocMaxJobsLimit", "a limit of your account, queue or quality of service is reached"),
        ("QOSMaxCpuPerJobLimit", "the job requests more than a limit of the account or quality"),
        ("AssocMaxNodePerJobLimit", "the job requests more than a limit of the account or"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "the requested nodes are reserved, down or"),
        ("DependencyNeverSatisfied", "a job that this job waits for did not end as required"),
        ("InvalidQOS", "the account or quality of service may not use this partition"),
    ],
)
def test_a_pending_reason_is_explained_with_a_remedy(reason: str, meaning: str) -> None:
    text = explained(reason, states.REASONS)
    assert text.startswith(f"{reason}: {meaning}")
    assert "; " in text
    assert explained("NoSuchReason", states.REASONS) == "NoSuchReason"


class TestUpstreamFunctions:
    def test_states(self) -> None:
        assert appstate_from_slurm_state("COMPLETED") == AppState.SUCCEEDED
        assert appstate_from_slurm_state("NO_SUCH") == AppState.UNKNOWN
        assert SLURM_STATES["EXPEDITING"] == AppState.PENDING  # a state of newer versions
        assert SLURM_STATES["PREEMPTED"] == AppState.FAILED
