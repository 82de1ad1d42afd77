"""Tests that kill a rank before and after each change of a file, and start the next attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranks import run_ranks

#: Each step has a checkpoint, of which two are kept.
OPTIONS: dict[str, Any] = {"end": 4, "every": 1, "lockstep": True, "work": 0.0}


def check_all_points(folder: Path, world: int, **options: Any) -> None:
    """Check that each run ends as an undisturbed run, and loses no committed step."""
    [[undisturbed]] = run_ranks(folder / "undisturbed", **OPTIONS, world=world)
    runs = run_ranks(folder / "killed", **OPTIONS, world=world, **options)
    assert len(runs) > 20
    kills = len(options.get("kills", [])) + 1
    assert [len(attempts) for attempts in runs] == [kills + 1] * (len(runs) - 1) + [kills]
    for point, attempts in enumerate(runs):
        assert attempts[-1]["codes"] == [0] * world
        assert attempts[-1]["weights"] == undisturbed["weights"]
        newest = [max(attempt["committed"], default=-1) for attempt in attempts]
        assert newest == sorted(newest)
        # A rank that was killed between a commit and the deletion of an old checkpoint left it.
        assert attempts[-1]["committed"] in ([2, 3], [1, 2, 3])
        [last] = (folder / "killed" / str(point) / "attempts").iterdir()
        assert not [path for path in last.iterdir() if path.is_dir()]


def test_run_survives_a_kill_at_each_point(tmp_path: Path) -> None:
    check_all_points(tmp_path, 1, all_points=0)


def test_run_survives_a_kill_at_each_point_of_the_next_attempt(tmp_path: Path) -> None:
    # The first attempt leaves a checkpoint that is half written.
    [attempts] = run_ranks(tmp_path / "first", **OPTIONS, kills=[(0, 31)])
    assert attempts[0]["committed"] == [0]
    check_all_points(tmp_path, 1, kills=[(0, 31)], all_points=0)


@pytest.mark.parametrize("rank", [0, 1])
def test_run_of_two_ranks_survives_a_kill_of_each_rank_at_each_point(
    tmp_path: Path, rank: int
) -> None:
    check_all_points(tmp_path, 2, all_points=rank)
