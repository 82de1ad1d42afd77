"""What is verified side by side, and what is printed of it."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest

import environments
import verification


def test_everything_is_verified_and_what_failed_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def verify(name: str) -> str:
        if name == "broken":
            raise verification.Failed("its output")
        if name == "missing":
            raise environments.EnvironmentFailure("no such interpreter")
        return f"seen {name}"

    assert verification.verify_all("trials", ["broken", "fine", "missing"], verify) == 1
    said = capsys.readouterr().out
    lines = sorted(re.sub(r"^ +\d+ s  ", "", line) for line in said.splitlines())
    assert lines == [
        "broken: FAILED",
        "fine: seen fine",
        "its output",
        "missing: FAILED",
        "no such interpreter",
        "trials: 1 passed, 2 failed: broken, missing",
    ]
    assert verification.verify_all("trials", ["fine"], verify) == 0
    assert capsys.readouterr().out.endswith("trials: 1 passed, 0 failed\n")


def test_two_are_verified_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    both = threading.Barrier(2, timeout=20)

    def verify(name: str) -> str:
        return str(both.wait())

    assert verification.verify_all("trials", ["one", "other"], verify) == 0


def test_a_program_sees_its_environment_and_no_other_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import os; print(os.getcwd(), os.environ['VIRTUAL_ENV'], 'PYTHONPATH' in os.environ)"
    said = verification.run([sys.executable, "-c", code], cwd=tmp_path, environment=tmp_path / "e")
    assert said == f"{tmp_path} {tmp_path / 'e'} False\n"


def test_a_program_that_fails_shows_both_outputs(tmp_path: Path) -> None:
    code = "import sys; print('out', flush=True); print('error', file=sys.stderr); sys.exit(4)"
    with pytest.raises(verification.Failed, match=r"^\$ .*\nout\nerror\nexit code 4$"):
        verification.run([sys.executable, "-c", code], cwd=tmp_path)
