"""Tests of ``torchx doctor`` with a real Docker Engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_version_image_store_and_disk(
    engine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in engine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "torchx_cli", "doctor", "-s", "local_docker", "-o", "json"]
    done = subprocess.run(
        [*command, "--timeout", "30s"], check=False, capture_output=True, text=True
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == 0, rows
    texts = [row["message"] for row in rows if row["subject"] == "local_docker"]
    assert texts[0].startswith("docker library ")
    assert texts[1].startswith("Docker Engine ")
    assert texts[2].startswith("image store: the engine's own, driver ")
    assert " GB free" in texts[3]
    assert texts[4].startswith("runtimes: ")
