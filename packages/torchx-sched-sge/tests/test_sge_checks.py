"""Tests of the checks for ``torchx doctor`` without Grid Engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_sched_sge.checks import check_cluster


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory on PATH, which is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_without_grid_engine_one_error_says_so(programs: Path) -> None:
    [result] = check_cluster({})
    assert result.level == "error"
    assert result.message.startswith("Grid Engine is not installed: qsub, qstat, qdel, qconf,")
    assert "settings.sh" in result.remedy


def test_a_qmaster_that_does_not_answer_is_an_error(programs: Path) -> None:
    for name in ("qsub", "qstat", "qdel", "qacct", "qconf"):
        program = programs / name
        program.write_text(
            "#!/bin/sh\necho 'error: commlib error: got select error (Connection refused)' >&2\n"
            "exit 1\n"
        )
        program.chmod(0o755)
    [result] = check_cluster({})
    assert result.level == "error"
    assert "commlib error: got select error" in result.message
