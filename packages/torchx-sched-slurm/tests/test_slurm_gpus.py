"""Tests of the count of GPUs, with a recorded output of scontrol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchx_sched_slurm.scheduler import create_scheduler
from torchx_sched_slurm.system import parse_nodes
from torchx_specs.schedulers import GpuCounts

NODES = Path(__file__).parent / "recorded" / "scontrol-nodes-22.05.8.txt"


def test_gpus_of_nodes_with_jobs_of_a_drained_and_of_a_down_node(
    command_double: Callable[..., Path],
) -> None:
    calls = command_double("scontrol", f"while read -r line; do echo \"$line\"; done < '{NODES}'")
    assert create_scheduler("test").gpus() == GpuCounts(free=4, used=2, unavailable=6)
    assert "--details --oneliner show nodes" in calls.read_text()


@pytest.mark.parametrize(
    ("state", "is_open"),
    [
        *((state, True) for state in ("IDLE", "MIXED", "IDLE+CLOUD+POWERED_DOWN")),
        *((state, False) for state in ("IDLE*", "DOWN*+NOT_RESPONDING", "UNKNOWN+DRAIN+INVALID")),
        *((state, False) for state in ("IDLE+MAINTENANCE", "IDLE+POWERED_DOWN+FAIL")),
    ],
)
def test_states_of_nodes_that_start_jobs(state: str, is_open: bool) -> None:
    [(total, used, found)] = parse_nodes(f"NodeName=n Gres=gpu:2 GresUsed=gpu:0 State={state} X=1")
    assert (total, used, found) == (2, 0, is_open)


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("(null)", 0),
        ("gpu:2", 2),
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:a100_3g.20gb:2(IDX:0,1),gpu:v100:1(IDX:2),shard:a100:8(0/4,0/4)", 3),
        ("craynetwork:4,license:gpu:9", 0),
    ],
)
def test_generic_resources(gres: str, count: int) -> None:
    assert [found[0] for found in parse_nodes(f"NodeName=n Gres={gres} State=IDLE")] == [count]
