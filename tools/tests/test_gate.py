"""Tests of the programs that decide what ``.ci/run`` runs, and whether it passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import changed_services
import check_clocks
import deep
import flakes
import gate
import summary
from workspace import ROOT, SERVICES

JUNIT = """<testsuites><testsuite>
<testcase classname="packages.a.tests.test_a.TestOne" name="test_b[x.py::y]">{}</testcase>
<testcase classname="packages.a.tests.test_a" name="test_c"/>
</testsuite></testsuites>"""
FAILED = "packages/a/tests/test_a.py::TestOne::test_b[x.py::y]"


def failure(name: str = FAILED) -> flakes.Failure:
    return flakes.Failure([name], [], "", {})


def reports(folder: Path, flaky: str = "") -> Path:
    """Write the report of a run in which one of two tests failed."""
    (folder / "tests.xml").write_text(JUNIT.format('<failure message="no"/>'))
    (folder / "flaky.txt").write_text(flaky)
    return folder


def test_a_failed_test_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert summary.main(reports(tmp_path), 0) == 1
    assert capsys.readouterr().out.endswith("1 passed, 1 failed, 0 skipped\n")


def test_a_flaky_test_passes_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summary.main(reports(tmp_path, f"{FAILED}\n"), 0) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 0 failed, 0 skipped"
    assert f"FLAKY: {FAILED}" in lines


def test_a_stop_fails_the_gate_although_all_tests_passed(tmp_path: Path) -> None:
    assert summary.main(reports(tmp_path, f"{FAILED}\n"), 3) == 1


def test_a_test_is_flaky_only_if_it_passes_three_times() -> None:
    outcomes = iter([True, True, True, True, False])
    runs = []

    def run(failed: flakes.Failure) -> bool:
        runs.extend(failed.names)
        return next(outcomes)

    assert flakes.flaky([failure("a"), failure("b")], set(), run) == ["a"]
    assert runs == ["a"] * 3 + ["b"] * 2


def test_a_test_is_flaky_only_once(tmp_path: Path) -> None:
    known = tmp_path / "flaky.txt"
    known.write_text(f"# A comment.\n2026-11-26 {FAILED}\n")
    assert flakes.flaky([failure()], flakes.names(known), lambda _: True) == []


def test_more_than_three_failures_are_not_flakes() -> None:
    failed = [failure(str(number)) for number in range(4)]
    assert flakes.flaky(failed, set(), lambda _: True) == []


def test_a_failed_test_is_recorded_with_the_command_that_runs_it(tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(
        "import pathlib, pytest\n"
        "def test_once():\n"
        "    marker = pathlib.Path(__file__).with_name('marker')\n"
        "    first, _ = not marker.exists(), marker.touch()\n"
        "    assert not first\n"
        "def test_never(): assert False\n"
        "@pytest.fixture(scope='session')\n"
        "def server(): raise OSError('no server')\n"
        "def test_one(server): pass\n"
        "def test_two(server): pass\n"
        "def test_always(): pass\n"
    )
    record = tmp_path / "reports" / "unit.failures.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        f"--failures={record}",
        "packages",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    failed = flakes.failures(record.parent)
    names = sorted([name.partition("::")[2] for name in one.names] for one in failed)
    assert names == [["test_never"], ["test_once"], ["test_one", "test_two"]]
    found = flakes.flaky(failed, set(), flakes.passes)
    assert found == ["packages/test_it.py::test_once"]


def test_a_test_that_is_not_found_again_is_not_flaky(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q"]
    assert not flakes.passes(flakes.Failure(["test_none.py::test_a"], command, str(tmp_path), {}))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("packages/torchx-sched-k8s/src/torchx_sched_k8s/logs.py", ["k8s"]),
        ("packages/torchx-workspace-docker/pyproject.toml", ["docker", "registry"]),
        ("integration/sge/test_sge_jobs.py", ["sge"]),
        ("integration/k8s/k8s_double/store.py", ["doubles", "k8s"]),
        ("integration/aws/test_aws_double.py", ["aws", "doubles"]),
        ("packages/torchx-cli/README.md", []),
        ("integration/conftest.py", []),
        ("integration/clients/conftest.py", []),
        ("docs/index.md", []),
    ],
)
def test_a_change_selects_the_services_that_it_touches(file: str, expected: list[str]) -> None:
    assert changed_services.services([file]) == expected


def test_each_scheduler_has_a_folder_with_tests() -> None:
    schedulers = {path.name for path in ROOT.glob("packages/torchx-sched-*")}
    assert schedulers <= set(changed_services.FOLDERS)
    assert set(" ".join(changed_services.FOLDERS.values()).split()) <= set(SERVICES)


def test_the_gate_leaves_out_random_moments_and_second_versions() -> None:
    case = "slurm/test_slurm_conformance.py::TestSlurm::test_success"
    assert gate.is_selected(f"{case}[plain]", marked=True)
    assert not gate.is_selected(f"{case}[plain]", marked=False)
    assert gate.is_selected(f"{case}[plain]", marked=False, whole=["slurm"])
    assert not gate.is_selected(f"{case}[trixie]", marked=True, whole=["slurm"])
    double = "aws/test_aws_double.py::test_logs"
    assert not gate.is_selected(double, marked=False, whole=["aws"])
    assert gate.is_selected(double, marked=False, whole=["aws", "doubles"])
    kills = "local/test_sweep_kills.py::test_kills"
    assert not gate.is_selected(kills, marked=False, whole=["local"])


def test_deep_repeats_a_part_only_if_it_failed_or_a_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[str] = []
    outcomes = iter([False, True, True])

    def run(part: str) -> dict[str, object]:
        runs.append(part)
        return {"passed": next(outcomes), "minutes": 1.0}

    monkeypatch.setattr(deep, "RESULTS", tmp_path)
    monkeypatch.setattr(deep, "run", run)
    monkeypatch.setattr(deep, "digest_of_files", lambda: "one")
    assert [deep.main(["slurm"]) for _ in range(3)] == [1, 0, 0]
    assert len(runs) == 2
    monkeypatch.setattr(deep, "digest_of_files", lambda: "two")
    assert deep.main(["slurm"]) == 0
    assert len(runs) == 3
    assert json.loads((tmp_path / "slurm.json").read_text())["files"] == "two"
    assert deep.main(["slurn"]) == 2
    assert "unknown part 'slurn'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("begin = time.monotonic()\n    assert time.monotonic() - begin < 5", [3]),
        ("while time.monotonic() < deadline:\n        pass", [2]),
        ("took = time.time() - begin\n    assert took < 1", [3]),
        ("took = resource.getrusage(who).ru_utime - began\n    assert took < 1", [3]),
        ("assert time.thread_time() - began < 1", [2]),
        ("assert resource.getrusage(who).ru_maxrss < 100", []),
        ("assert record.began <= time.time()", []),
        ("wait_for(lambda: job.ended)", []),
    ],
)
def test_comparisons_of_elapsed_time_are_found(body: str, lines: list[int]) -> None:
    assert list(check_clocks.bounds(f"def test():\n    {body}\n")) == lines
