"""Tests of watching local, Docker and Slurm jobs, as a user does on a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from terminal import Terminal

# The replicas end once the file `go` exists, and replica 1 fails.
SCRIPT = """
while [ ! -e "$0/go" ]; do sleep 0.1; done
[ "$1" = 1 ] || exit 0
i=0; while [ $i -lt 30 ]; do echo "step $i" >&2; i=$((i + 1)); done
echo "CUDA out of memory" >&2
exit 7
"""


@pytest.fixture
def job(backend: Backend, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an app to a file."""

    def write(script: str, replicas: int = 1) -> Path:
        folder = tmp_path / "shared"
        folder.mkdir(exist_ok=True)
        role: dict[str, Any] = {
            "name": "main",
            "image": backend.image,
            "entrypoint": "sh",
            "args": ["-c", script, str(folder), "${replica_id}"],
            "num_replicas": replicas,
            "resource": {"cpu": 1, "gpu": 0, "memMB": 64},
        }
        if backend.image:
            role["mounts"] = [{"type": "bind", "src_path": str(folder), "dst_path": str(folder)}]
        path = tmp_path / "work" / "job.json"
        path.write_text(json.dumps({"name": "train", "roles": [role]}))
        return path

    return write


def test_a_user_watches_a_job_and_sees_what_failed(
    backend: Backend, command: Any, on_terminal: Callable[..., Terminal], job: Any, tmp_path: Path
) -> None:
    submitted = command(*backend.run_words(), job(SCRIPT, replicas=3))
    assert submitted.returncode == 0, submitted.stderr
    handle = submitted.stdout.strip()
    with on_terminal("status", "--watch", "@1") as screen:
        screen.expect("RUNNING for ")
        screen.expect("3 RUNNING")
        (tmp_path / "shared" / "go").touch()
        assert screen.finish() == 0
    with on_terminal("wait", "@1") as screen:
        assert screen.finish() == 1
    assert re.search(
        r"job finished: FAILED after [\w ]+: main/1( on \S+)?: exit code 7", screen.shown
    )
    assert "the last lines of the standard error of main/1:" in screen.shown
    assert "main/1 CUDA out of memory" in screen.shown
    assert screen.shown.count("main/1 step ") == 19
    assert f"'torchx log {handle}/main/1' and 'torchx status {handle}'" in screen.shown
    status = json.loads(command("status", "--json", "@1").stdout)
    (item,) = json.loads(command("list", "--json", "-s", backend.scheduler).stdout)
    for data in (status, item):
        times = [
            datetime.fromisoformat(data[k].replace("Z", "+00:00"))
            for k in ("submitted", "started", "ended")
        ]
        assert times == sorted(times)
        assert all(when.tzinfo is not None for when in times)
    (role,) = status["roles"]
    failed = next(r for r in role["replicas"] if r["id"] == 1)
    assert failed["exit_code"] == 7
    assert failed["started"] <= failed["ended"]
    with on_terminal("status", "--replicas", "@1") as screen:
        assert screen.finish() == 0
    assert re.search(r"main\[1\]:FAILED .*started .*, ran for ", screen.shown)


def test_a_user_leaves_a_job_that_waits_and_comes_back(
    backend: Backend, command: Any, on_terminal: Callable[..., Terminal], job: Any
) -> None:
    submitted = command(*backend.run_words(), job("exec sleep 86400"))
    handle = submitted.stdout.strip()
    with on_terminal("wait", "train") as screen:
        screen.expect("RUNNING")
        os.kill(screen.process.pid, signal.SIGINT)
        assert screen.finish() == 130
    assert f"{handle} continues; run 'torchx cancel {handle}' to end it" in screen.shown
    assert command("cancel", "@1").returncode == 0
    with on_terminal("wait", "@1") as screen:
        assert screen.finish() == 1
    assert screen.shown.rstrip().endswith("CANCELLED")


@pytest.mark.parametrize("backend", ["slurm"], indirect=True)
def test_a_user_sees_why_a_job_of_the_cluster_waits(
    backend: Backend, command: Any, on_terminal: Callable[..., Terminal], job: Any
) -> None:
    words = backend.run_words("--wait", "-cfg", "replicas_per_node=1")
    with on_terminal(*words, str(job("exit 0", replicas=50))) as screen:
        screen.expect("PENDING")
        screen.expect("use fewer replicas, a larger replicas_per_node, or another partition")
        os.kill(screen.process.pid, signal.SIGINT)
        assert screen.finish() == 130
    assert "continues; run 'torchx cancel" in screen.shown
    with on_terminal("status", "@1") as screen:
        assert screen.finish() == 0
    assert re.search(r"PENDING for .*: Partition(NodeLimit|Config)", screen.shown)
    assert command("cancel", "@1").returncode == 0
