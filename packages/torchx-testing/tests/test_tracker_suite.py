"""Tests of the suite of trackers: working and broken ones, declared features, reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import Case, Run, run_cases

IMPORTS = """
import fake_tracker
from torchx_testing.tracker_suite import TrackerConformance
"""


def test_a_report_has_the_name_of_the_tracker(tmp_path: Path) -> None:
    named = case("FakeTracker", "test_metadata")
    named = named._replace(body=f"tested_name = 'acme'\n{named.body}")
    run_cases(tmp_path, IMPORTS, [named], "--torchx-report", "reports")
    [report] = tmp_path.glob("reports/*/*/report.json")
    assert report.parent.relative_to(tmp_path / "reports").as_posix() == "acme/TestFakeTracker"


def case(tracker: str, test: str = "", unsupported: dict[str, str] | None = None) -> Case:
    body = f"""
unsupported = {unsupported or {}!r}

@pytest.fixture
def store(self):
    return {{}}

@pytest.fixture
def tracker(self, store):
    return fake_tracker.{tracker}(store)

@pytest.fixture
def reopen(self, store):
    return lambda: fake_tracker.{tracker}(store)
"""
    return Case(f"Test{tracker}", "TrackerConformance", body, test)


WRONG = [
    ("MixesRuns", "test_runs_are_kept_apart"),
    ("FoldsCase", "test_odd_run_ids"),
    ("StripsValues", "test_hostile_values"),
    ("KeepsFirstArtifact", "test_an_artifact_of_the_same_name_is_replaced"),
    ("RaisesForUnknownRuns", "test_a_run_that_nothing_was_recorded_of"),
    ("IgnoresTheParent", "test_runs_by_their_parent"),
    ("NoLineage", "test_lineage"),
    ("Forgets", "test_another_process_sees_the_same"),
    ("TakesTheFirstSource", "test_sources"),
    ("RecordsHalf", "test_what_cannot_be_recorded_is_refused"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the test that must fail for each tracker of WRONG."""
    return run_cases(tmp_path_factory.mktemp("wrong"), IMPORTS, [case(*w) for w in WRONG])


@pytest.mark.parametrize(("tracker", "test"), WRONG)
def test_a_tracker_that_is_wrong_fails(wrong: Run, tracker: str, test: str) -> None:
    assert wrong.outcomes[f"Test{tracker}", test] == {"failure"}, wrong.text


def test_a_tracker_that_works_passes(tmp_path: Path) -> None:
    run = run_cases(tmp_path, IMPORTS, [case("FakeTracker")])
    assert set().union(*run.outcomes.values()) == {"passed"}, run.text
    assert len(run.outcomes) >= 18


def test_what_is_declared_is_left_out_and_counted(tmp_path: Path) -> None:
    run = run_cases(
        tmp_path,
        IMPORTS,
        [case("NoLineage", "(test_lineage or test_a_cycle)", {"lineage": "none"})],
    )
    assert set().union(*run.outcomes.values()) == {"skipped"}
    assert "TestNoLineage: lineage (2): none" in run.text
