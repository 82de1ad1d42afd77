"""Tests of torchx_resilience with a process group of gloo: its store carries the agreement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ranks import run_ranks


@pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "different-speeds"])
@pytest.mark.parametrize(
    ("world", "signalled"), [(1, [0]), (2, [1]), (2, [0]), (8, [5, 0, 7])], ids=str
)
def test_ranks_stop_at_the_same_step(
    tmp_path: Path, world: int, signalled: list[int], lockstep: bool
) -> None:
    signals = [(rank, "SIGTERM") for rank in signalled]
    [[outcome]] = run_ranks(
        tmp_path / "run", world=world, lockstep=lockstep, signals=signals, gloo=True
    )
    assert outcome["codes"] == [75] * world
    assert len(set(outcome["stops"])) == 1
    assert outcome["committed"] == outcome["stops"][:1]
    # No value of the agreement is in the folder.
    assert os.listdir(tmp_path / "run" / "attempts" / "0.0") == ["requeue"]


def test_stopped_and_killed_runs_end_with_the_weights_of_the_undisturbed_run(
    tmp_path: Path,
) -> None:
    options = {"world": 2, "lockstep": True, "end": 2_500, "every": 1_000, "gloo": True}
    [[undisturbed]] = run_ranks(tmp_path / "undisturbed", **options, work=0.0)
    [stopped] = run_ranks(tmp_path / "stopped", **options, signals=[(1, "SIGTERM")])
    assert [attempt["codes"] for attempt in stopped] == [[75, 75], [0, 0]]
    assert stopped[-1]["weights"] == undisturbed["weights"]
    # Rank 0 is killed before and after a change in its first checkpoint.
    for point in (12, 15):
        folder = tmp_path / f"killed{point}"
        [killed] = run_ranks(folder, **options, kills=[(0, point)], work=0.0)
        assert len(killed) == 2
        assert killed[-1]["weights"] == undisturbed["weights"]
