"""Tests of the budgets of attempts and of the resume folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.jobs.attempts import committed_step, is_requested, newest_step, refusal


@pytest.mark.parametrize(
    ("reasons", "retries", "is_last"),
    [
        (["failed"], 0, True),
        (["failed"], 1, False),
        (["failed", "preempted", "out-of-memory"], 1, True),
        (["failed", "preempted"], 0, False),
        (["requested"], 0, False),
        (["preempted"] * 50, 0, False),
    ],
)
def test_only_failures_of_the_program_use_up_the_retries(
    reasons: list[str], retries: int, is_last: bool
) -> None:
    refused = refusal(reasons, [None] * (len(reasons) + 1), retries, has_folder=False)
    assert (refused is not None) is is_last


@pytest.mark.parametrize(
    ("steps", "is_last"),
    [
        ([None, None, None], False),
        ([None, None, None, None], True),
        ([None, None, None, 0], False),
        ([None, 7, 7, 7], False),
        ([None, 7, 7, 7, 7], True),
        ([5, 7, 7, 7, 8, 8, 8], False),
        ([7, 7, 7, 7], True),
    ],
)
def test_three_attempts_without_progress_are_the_last(
    steps: list[int | None], is_last: bool
) -> None:
    refused = refusal(["preempted"] * (len(steps) - 1), steps, 0, has_folder=True)
    assert (refused is not None) is is_last


def test_newest_step_is_the_largest_number() -> None:
    assert newest_step(["step-9", "step-10", "step-x", "attempts", "run", "old-11"]) == 10
    assert newest_step([]) is None
    assert committed_step(None) is None
    assert committed_step("/nonexistent") is None


def test_request_of_a_rank_belongs_to_its_attempt(tmp_path: Path) -> None:
    assert not is_requested(str(tmp_path), 1)
    (tmp_path / "attempts" / "1.0").mkdir(parents=True)
    (tmp_path / "attempts" / "1.2").mkdir()
    assert not is_requested(str(tmp_path), 1)
    (tmp_path / "attempts" / "1.2" / "requeue").touch()
    assert is_requested(str(tmp_path), 1)
    assert not is_requested(str(tmp_path), 12)
    assert not is_requested(None, 1)
