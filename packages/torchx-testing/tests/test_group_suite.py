"""Tests that the suite of groups passes for a working scheduler, and fails for a broken one."""

from __future__ import annotations

import pytest
from suite_runs import Case, Run, run_cases

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cases = [case("FakeScheduler"), *(case(*wrong, timeout=5) for wrong in WRONG)]
    return run_cases(tmp_path_factory.mktemp("groups"), IMPORTS, cases)


@pytest.mark.parametrize(("scheduler", "test"), WRONG)
def test_a_scheduler_that_is_wrong_fails(run: Run, scheduler: str, test: str) -> None:
    assert "failure" in run.outcomes[f"Test{scheduler}", test], run.text


def test_a_scheduler_that_works_passes(run: Run) -> None:
    outcomes = [kinds for (name, _), kinds in run.outcomes.items() if name == "TestFakeScheduler"]
    assert outcomes == [{"passed"}] * 4, run.text
