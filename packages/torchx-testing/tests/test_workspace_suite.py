"""Tests of the suite of builders: working and broken ones, declared features, read files."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import Case, Run, run_cases

IMPORTS = """
import fake_builder
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_testing.workspace_suite import WorkspaceBuilderConformance, read_folder
"""


def case(builder: str, test: str = "") -> Case:
    body = f"""
@pytest.fixture
def builder(self):
    return fake_builder.{builder}()

@pytest.fixture
def cfg(self, tmp_path):
    (tmp_path / "built").mkdir()
    return {{"root": str(tmp_path / "built")}}

def contents(self, builder, plan, built, cfg):
    return read_folder(plan.image)
"""
    return Case(f"Test{builder}", "WorkspaceBuilderConformance", body, test)


WRONG = [
    ("BuildsWhilePlanning", "test_a_plan_contacts_nobody_and_leaves_nothing"),
    ("RunsAProgram", "test_a_plan_contacts_nobody_and_leaves_nothing"),
    ("LooksAtTimes", "test_the_same_input_gives_the_same_reference"),
    ("LooksAtNothing", "test_another_input_gives_another"),
    ("TakesAll", "test_and_nothing_that_is_left_out"),
    ("FollowsLinks", "test_links"),
    ("LosesModes", "test_modes"),
]

DIR = Case(
    "TestDir",
    "WorkspaceBuilderConformance",
    """
unsupported = {
    "addressed_by_input": "the user names the folder",
    "build_again": "the folder must be a new one",
}

@pytest.fixture
def builder(self):
    return DirBuilder()

@pytest.fixture
def cfg(self, tmp_path):
    return {"job_dir": str(tmp_path / "job")}

def contents(self, builder, plan, built, cfg):
    return read_folder(plan.image)
""",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the suite on two builders that work, and on each builder of WRONG."""
    cases = [case("FakeBuilder"), DIR, *(case(*w) for w in WRONG)]
    return run_cases(tmp_path_factory.mktemp("builders"), IMPORTS, cases)


@pytest.mark.parametrize(("builder", "test"), WRONG)
def test_a_builder_that_is_wrong_fails(runs: Run, builder: str, test: str) -> None:
    assert runs.outcomes[f"Test{builder}", test] == {"failure"}, runs.text


@pytest.mark.parametrize("suite", ["TestFakeBuilder", "TestDir"])
def test_a_builder_that_works_passes(runs: Run, suite: str) -> None:
    mine = {test: kinds for (name, test), kinds in runs.outcomes.items() if name == suite}
    assert len(mine) == 12
    left_out = {test for test, kinds in mine.items() if kinds == {"skipped"}}
    assert all(kinds in ({"passed"}, {"skipped"}) for kinds in mine.values()), runs.text
    expected = {"test_building_again", "test_another_input_gives_another"}
    # The test of another file system is skipped if fsspec is not installed.
    assert left_out - {"test_a_workspace_on_another_file_system"} == (
        expected if suite == "TestDir" else set()
    )


def test_what_is_declared_is_told(runs: Run) -> None:
    assert "TestDir: build_again (1): the folder must be a new one" in runs.text


def test_a_folder_as_it_is_read(tmp_path: Path) -> None:
    from torchx_testing.workspace_suite import Entry, read_folder

    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"1")
    (tmp_path / "a/b").chmod(0o700)
    (tmp_path / "l").symlink_to("a/b")
    assert read_folder(tmp_path) == {
        "a/b": Entry(b"1", executable=True),
        "l": Entry(b"", link="a/b"),
    }
