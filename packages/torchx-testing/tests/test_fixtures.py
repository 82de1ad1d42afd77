"""Tests of the base classes for unittest-style tests."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchx_testing import fixtures
from torchx_testing.fixtures import TestWithTmpDir, write_shell_script


class Example(TestWithTmpDir):
    def runTest(self) -> None:  # noqa: N802 - unittest's name
        pass


Example.__test__ = False


@pytest.fixture
def case() -> Iterator[Example]:
    example = Example()
    example.setUp()
    yield example
    example.tearDown()


def test_each_test_has_a_folder_of_its_own() -> None:
    one, two = Example(), Example()
    one.setUp()
    two.setUp()
    assert one.tmpdir != two.tmpdir
    assert one.tmpdir.is_dir()
    (one.tmpdir / "x").touch()
    one.tearDown()
    assert not one.tmpdir.exists()
    two.tearDown()


def test_files_and_folders(case: Example) -> None:
    assert case.touch("d/e.txt") == case.tmpdir / "d/e.txt"
    assert case.mkdir("x/y").is_dir()
    case.write("w.txt", ["a", "b\n", "c"])
    assert case.read("w.txt") == ["ab\n", "c"]
    assert case.read(case.tmpdir / "w.txt") == ["ab\n", "c"]
    case.write("w.txt", "text\n")
    assert case.read("w.txt") == ["text\n"]


def test_shell_scripts(case: Example) -> None:
    script = case.write_shell_script("bin/s.sh", ["echo hi", "exit 3"])
    assert script.read_text() == "#! /bin/bash\necho hi\nexit 3\n\n"
    done = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("hi\n", 3)
    assert write_shell_script(str(case.tmpdir), "t.sh", []) == str(case.tmpdir / "t.sh")


def test_trees(case: Example) -> None:
    tree = {"file": "text", "folder": {"inner": "1", "empty": {}}}
    assert case.create_dir_tree("root", tree) == case.tmpdir / "root"
    case.assertDirTree("root", tree)
    case.assertDirTree(case.tmpdir / "root", {"file": "", "folder": {"inner": None, "empty": {}}})
    case.assertDirIsEmpty("root/folder/empty")


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda c: c.assertDirTree("r", {"f": "other"}), "content 'text' does not match"),
        (lambda c: c.assertDirTree("r", {}), "do not match the expected"),
        (lambda c: c.assertDirTree("r", {"f": "text", "g": ""}), "do not match the expected"),
        (lambda c: c.assertDirTree("r", {"f": {}}), "is not a directory"),
        (lambda c: c.assertDirTree("none", {}), "is not a directory"),
        (lambda c: c.assertDirIsEmpty("r"), "is not empty"),
        (lambda c: c.assertDirIsEmpty("none"), "is not a directory"),
    ],
)
def test_what_is_wrong_is_said(case: Example, check: Callable[[Example], None], said: str) -> None:
    case.create_dir_tree("r", {"f": "text"})
    with pytest.raises(AssertionError, match=said):
        check(case)


def test_a_folder_where_a_file_belongs(case: Example) -> None:
    case.mkdir("r/f")
    with pytest.raises(AssertionError, match="is not a file"):
        case.assertDirTree("r", {"f": ""})


def test_ci(tmp_path: Path) -> None:
    for value, expected in (("true", "True"), ("True", "True"), ("1", "False"), ("", "False")):
        code = "from torchx_testing import fixtures; print(fixtures.IS_CI)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"CI": value, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
    assert (sys.platform == "darwin") == fixtures.IS_MACOS


def test_they_are_cases_of_unittest() -> None:
    assert issubclass(TestWithTmpDir, unittest.TestCase)
    assert unittest.TestResult().wasSuccessful()
    result = unittest.TestResult()
    Example().run(result)
    assert result.wasSuccessful()
