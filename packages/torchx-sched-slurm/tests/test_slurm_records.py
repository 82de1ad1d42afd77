"""The index of jobs, and the file of their directories."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchx_kit.batch.entries import Index
from torchx_sched_slurm.job_files import records
from torchx_sched_slurm.job_files.job_dirs import job_dirs, record_job_dir
from torchx_sched_slurm.scheduler import SLURM_JOB_DIRS


def test_concurrent_writes_of_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    index = Index("slurm", records.SlurmEntry)
    entry = records.SlurmEntry("5", "app", "/w", "/w/r")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: index.put(entry), range(400)))
    assert index.get("5") == entry
    assert [path.name for path in (tmp_path / "slurm" / "apps").iterdir()] == ["5.json"]


class TestJobDirs:
    def test_job_dirs_file_is_read_and_appended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert job_dirs() == {}
        record_job_dir("1", "/a b = c")
        record_job_dir("2@cluster", "/d")
        assert (tmp_path / SLURM_JOB_DIRS).read_text() == "1 = /a b = c\n2;cluster = /d\n"
        assert job_dirs() == {"1": "/a b = c", "2;cluster": "/d"}
        (tmp_path / SLURM_JOB_DIRS).write_text("rubbish\n3 = /x\n")
        assert job_dirs() == {"3": "/x"}
