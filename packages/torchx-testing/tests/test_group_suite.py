"""Tests that the suite of groups passes for a working scheduler, and fails for a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import Case, run_cases

IMPORTS = """
import fake_scheduler
from torchx_testing.group_suite import GroupConformance
"""

WRONG = [
    ("SubmitsTwice", "test_each_element_runs_once_and_ends_in_its_state"),
    ("ListsNoNames", "test_an_interrupted_submission_is_not_repeated"),
    ("IgnoresCancel", "test_cancel_ends_all_elements"),
]


def case(scheduler: str, test: str = "", timeout: int = 60) -> Case:
    body = f"""
timeout = {timeout}
poll_interval = 0.05

@pytest.fixture
def scheduler(self):
    return fake_scheduler.{scheduler}()
"""
    return Case(f"Test{scheduler}", "GroupConformance", body, test)


@pytest.mark.parametrize(("scheduler", "test"), WRONG)
def test_a_scheduler_that_is_wrong_fails(tmp_path: Path, scheduler: str, test: str) -> None:
    run = run_cases(tmp_path, IMPORTS, [case(scheduler, test, timeout=5)])
    assert "failure" in run.outcomes[f"Test{scheduler}", test], run.text


def test_a_scheduler_that_works_passes(tmp_path: Path) -> None:
    run = run_cases(tmp_path, IMPORTS, [case("FakeScheduler")])
    assert set().union(*run.outcomes.values()) == {"passed"}, run.text
    assert len(run.outcomes) == 4
