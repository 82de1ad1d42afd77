"""How long queries are retried; doubles of the commands print what Slurm 22.05 prints."""

from __future__ import annotations

import pytest
from slurm_requests import Double

from torchx_kit.batch.errors import UnreachableError
from torchx_sched_slurm.system import Slurm

REFUSED = (
    'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1'
)


def client(slept: list[float]) -> Slurm:
    return Slurm(patience=60.0, sleep=slept.append)


def test_a_query_fails_at_once_if_all_controllers_are_down(command_double: Double) -> None:
    squeue = command_double("squeue", REFUSED)
    ping = command_double(
        "scontrol", 'echo "Slurmctld(primary) at vm is DOWN"; echo "****"; exit 1'
    )
    slept: list[float] = []
    with pytest.raises(UnreachableError) as caught:
        client(slept).run_idempotent("squeue", "--clusters", "two", "-h")
    assert str(caught.value) == (
        "squeue: Unable to contact slurm controller (connect failure)"
        " (scontrol ping: Slurmctld(primary) at vm is DOWN)"
    )
    assert (slept, squeue.read_text()) == ([], "--clusters two -h\n")
    assert ping.read_text() == "--clusters two ping\n"


@pytest.mark.parametrize(
    "ping",
    [
        'echo "Slurmctld(primary) at a is DOWN"; echo "Slurmctld(backup) at b is UP"; exit 1',
        'echo "scontrol: error: no idea" >&2; exit 1',
    ],
    ids=["the backup is up", "unknown"],
)
def test_a_query_is_retried_if_a_controller_may_be_up(command_double: Double, ping: str) -> None:
    squeue = command_double("squeue", f'[ "$(wc -l < "$0.calls")" -ge 4 ] || {{ {REFUSED}; }}')
    command_double("scontrol", ping)
    slept: list[float] = []
    assert client(slept).run_idempotent("squeue") == ""
    assert len(squeue.read_text().splitlines()) == 4
    assert len(slept) == 2


def test_a_controller_that_has_answered_is_expected_to_come_back(command_double: Double) -> None:
    command_double("squeue", f'[ "$(wc -l < "$0.calls")" != 2 ] || {{ {REFUSED}; }}')
    ping = command_double("scontrol", "exit 1")
    slept: list[float] = []
    slurm = client(slept)
    for _ in range(2):
        assert slurm.run_idempotent("squeue") == ""
    assert len(slept) == 1
    assert not ping.exists()
