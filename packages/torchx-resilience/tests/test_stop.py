"""Tests of the agreed stop with processes that share only the resume folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ranks import run_ranks


def check_stop(folder: Path, world: int, outcome: dict[str, Any]) -> None:
    """Check that all ranks stopped at one step, committed it and asked for another attempt."""
    assert outcome["codes"] == [75] * world
    [step] = set(outcome["stops"])
    assert sorted(os.listdir(folder)) == ["attempts", f"step-{step}"]
    assert sorted(os.listdir(folder / f"step-{step}")) == [f"rank{rank}" for rank in range(world)]


@pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "different-speeds"])
@pytest.mark.parametrize("world", [1, 2, 8])
def test_ranks_stop_at_the_same_step_after_signals_at_different_times(
    tmp_path: Path, world: int, lockstep: bool
) -> None:
    # The signals come while the ranks go on for some steps, or have stopped already.
    signals = [(rank, "SIGTERM") for rank in reversed(range(world))]
    [[outcome]] = run_ranks(tmp_path / "run", world=world, lockstep=lockstep, signals=signals)
    check_stop(tmp_path / "run", world, outcome)


@pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "different-speeds"])
@pytest.mark.parametrize("signalled", [0, 1])
def test_ranks_without_a_signal_stop_at_the_same_step(
    tmp_path: Path, signalled: int, lockstep: bool
) -> None:
    [[outcome]] = run_ranks(
        tmp_path / "run", world=2, lockstep=lockstep, signals=[(signalled, "SIGUSR1")], after=20
    )
    check_stop(tmp_path / "run", 2, outcome)


def test_run_that_was_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    options = {"world": 2, "lockstep": True, "end": 5_000, "every": 2_000}
    [[undisturbed]] = run_ranks(tmp_path / "undisturbed", **options)
    [outcomes] = run_ranks(tmp_path / "stopped", **options, signals=[(1, "SIGTERM")], after=50)
    assert outcomes[0]["codes"] == [75, 75]
    assert outcomes[-1]["codes"] == [0, 0]
    assert outcomes[-1]["weights"] == undisturbed["weights"]
