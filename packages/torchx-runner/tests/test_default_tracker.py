"""Tests of the tracker that local jobs of the command have without a configuration."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from torchx_runner import default_tracker
from torchx_runner.default_tracker import job_variables, readable_trackers


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "my home"))
    monkeypatch.delenv("TORCHX_TRACKERS", raising=False)
    monkeypatch.delenv("TORCHX_DEFAULT_TRACKER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "my home"


def test_a_local_job_gets_a_folder_of_the_user(home: Path) -> None:
    found = job_variables("local_cwd")
    assert found["TORCHX_TRACKERS"] == "fsspec"
    config = unquote(found["TORCHX_TRACKER_FSSPEC_CONFIG"])
    assert config == f"data:,protocol=file\nroot_path={home}/tracker\nauto_mkdir=true"


def test_other_jobs_get_none_and_it_can_be_turned_off(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job_variables("slurm") == {}
    monkeypatch.setenv("TORCHX_DEFAULT_TRACKER", "0")
    assert job_variables("local_cwd") == {}


def test_it_is_read_if_it_has_records_and_none_is_configured(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trackers:
        def find(self, name: str) -> str:
            return name

    class Manager:
        def trackers(self) -> Trackers:
            return Trackers()

    monkeypatch.setattr(default_tracker, "get_manager", Manager)
    assert readable_trackers() == {}
    (home / "tracker").mkdir(parents=True)
    assert list(readable_trackers()) == ["fsspec"]
    (home.parent / ".torchxconfig").write_text("[torchx:tracker]\nmine = mine:create\n")
    assert list(readable_trackers()) == ["mine:create"]
