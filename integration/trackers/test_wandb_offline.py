"""Tests of jobs that report to W&B offline, with W&B's own library, and of the commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Torchx = Callable[..., "CompletedProcess[str]"]

JOB = Path(__file__).with_name("job.py")


@pytest.fixture
def configured(torchx: Torchx, tmp_path: Path, environment: dict[str, str]) -> Torchx:
    """Configure the tracker, and return the function that runs ``torchx``."""
    for name in [name for name in environment if name.startswith("WANDB_")]:
        del environment[name]
    (tmp_path / "work" / ".torchxconfig").write_text(
        f"[torchx:tracker]\nwandb=\n[tracker:wandb]\nmode=offline\ndir={tmp_path}/runs\n"
    )
    return torchx


def read(torchx: Torchx, *arguments: str) -> dict[str, object]:
    done = torchx("tracker", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "W&B is offline" in line]
    assert len(warnings) == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["trackers"]["wandb"]
    return found


def test_commands_show_what_offline_replicas_recorded(configured: Torchx, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = configured("run", "-s", "local_cwd", f"{JOB}:experiment", "--out", out)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    (handle,) = set(re.findall(r"local_cwd://[^\s/]*/[\w-]+", output))
    assert read(configured, "list", "jobs") == [handle]
    assert read(configured, "list", "metadata", handle) == {
        "trainer.0.done": True,
        "trainer.1.done": True,
        "evaluator.0.done": True,
        "trainer.note": "é $HOME ${app_id}",
        "evaluator.note": "é $HOME ${app_id}",
    }
    # Each of the three replicas has its own W&B run, which `wandb sync` could upload.
    logs = list((tmp_path / "runs" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert [handle.encode() in log.read_bytes() for log in logs] == [True, True, True]
    tree = configured("tracker", "lineage", handle).stdout
    assert tree == f"{handle}\n└─ made from\n   └─ dataset/1 (train)\n"
