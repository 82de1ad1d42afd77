"""Tests of the budgets of attempts and of the resume folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchx_kit.jobs.attempts import (
    AttemptRules,
    attempt_problems,
    attempt_rules,
    committed_step,
    is_requested,
    newest_step,
    parse_attempts,
    refusal,
)
from torchx_specs import RequestError


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
    steps = [None] * (len(reasons) + 1)
    refused = refusal(AttemptRules(), reasons, steps, 60, max_retries=retries, has_folder=False)
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
    reasons = ["preempted"] * (len(steps) - 1)
    refused = refusal(AttemptRules(), reasons, steps, 60, max_retries=0, has_folder=True)
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


def test_options_are_the_rules() -> None:
    assert attempt_rules({}) is None
    assert attempt_rules({"requeue": True}) == AttemptRules()
    cfg = {
        "resume_dir": "/runs/a",
        "max_node_failures": 0,
        "max_total_time": "2h",
        "requeue_exit_codes": ["3", "4"],
    }
    assert attempt_rules(cfg) == AttemptRules(0, 7200.0, (75, 3, 4))


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"max_total_time": "2h"}, "option max_total_time needs the option requeue or resume_dir"),
        (
            {"requeue": True, "max_total_time": "2"},
            "option max_total_time: '2' is not a time limit",
        ),
        ({"requeue": True, "max_node_failures": -1}, "option max_node_failures: -1 is negative"),
        (
            {"requeue": True, "requeue_exit_codes": ["3", "256"]},
            "option requeue_exit_codes: '256' is not an exit code from 1 to 255",
        ),
    ],
)
def test_problems_of_options(cfg: dict[str, Any], problem: str) -> None:
    (found,) = attempt_problems(cfg)
    assert found.startswith(problem)
    with pytest.raises(RequestError, match=problem.partition(":")[0]):
        attempt_rules(cfg)


@pytest.mark.parametrize(
    ("end", "nodes"),
    [("end failed 2 -", ()), ("end failed 2 - ", ()), ("end failed 2 - b,a,b", ("a", "b"))],
)
def test_end_of_an_attempt_names_its_nodes(end: str, nodes: tuple[str, ...]) -> None:
    (found,) = parse_attempts(f"start 0 1 - \n{end}\n")
    assert (found.reason, found.nodes) == ("failed", nodes)
