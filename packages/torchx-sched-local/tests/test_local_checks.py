"""Tests of the checks for ``torchx doctor``."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_sched_local import checks


def test_the_folder_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "new" / "home"))
    [result] = checks.check_folder({})
    assert result.level == "ok"
    assert result.message.startswith(f"logs and records in {tmp_path}/new/home/local, which has ")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    [result] = checks.check_folder({"log_dir": "/proc/1/nowhere"})
    assert result.level == "error"
    assert result.message.startswith("/proc/1 is not writable: ")
    assert "log_dir" in result.remedy


@pytest.mark.parametrize(
    ("script", "level", "message"),
    [
        (None, "ok", "no GPUs (nvidia-smi is not on PATH)"),
        ("echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'", "ok", "1 GPUs: GPU 0: NVIDIA H100"),
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "warning",
            "nvidia-smi failed: Failed to initialize NVML: Driver/library version mismatch",
        ),
    ],
)
def test_gpus(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    level: str,
    message: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    [result] = checks.check_gpus({})
    assert (result.level, result.message) == (level, message)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x7fELF of another machine", "Exec format error"),
        (b"#!/no/such/shell\n", "No such file or directory"),
    ],
)
def test_an_nvidia_smi_that_cannot_be_run_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "nvidia-smi").write_bytes(content)
    (tmp_path / "nvidia-smi").chmod(0o755)
    [result] = checks.check_gpus({})
    assert result.level == "warning"
    assert result.message == f"{tmp_path}/nvidia-smi cannot be run: {reason}"
    assert "remove the file from PATH" in result.remedy
