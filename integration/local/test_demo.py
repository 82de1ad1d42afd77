"""Tests of the demo, from a fresh checkout to the job's status, and of a job that fails."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

NOT_IN_A_CHECKOUT = shutil.ignore_patterns(
    ".git", ".venv", ".nox", ".*_cache", "__pycache__", "*.egg-info"
)


def find_handle(text: str) -> str:
    handles = set(re.findall(r"local_cwd://\S+/demo-\w+", text))
    assert len(handles) == 1, text
    return handles.pop()


def test_the_bootstrap_runs_the_demo_in_a_fresh_checkout(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(repository, checkout, ignore=NOT_IN_A_CHECKOUT, symlinks=True)
    done = subprocess.run(
        [sys.executable, "tools/bootstrap.py", "demo", "--workers", "2"],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "coordinator/0 pi is about 3.14159" in output
    assert re.search(r"worker/1 worker 1 did \d+ pieces", output)
    assert "SUCCEEDED" in output


def test_another_process_reads_status_and_logs_of_the_demo(torchx: Any, repository: Path) -> None:
    run = torchx("run", "-s", "local_cwd", repository / "examples" / "demo.py:demo")
    assert run.returncode == 0, run.stderr
    handle = find_handle(run.stdout + run.stderr)

    status = torchx("status", "-o", "json", handle)
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["state"] == "SUCCEEDED"

    log = torchx("log", f"{handle}/coordinator")
    assert log.returncode == 0, log.stderr
    assert len(re.findall(r"piece \d+ of 12 done", log.stdout)) == 12
    assert "pi is about 3.141592" in log.stdout

    assert handle.rpartition("/")[2] in torchx("list", "-s", "local_cwd").stdout
    assert torchx("delete", handle).returncode == 0
    assert torchx("status", handle).returncode == 1


def test_run_of_a_failing_job_exits_with_1(torchx: Any) -> None:
    run = torchx("run", "-s", "local_cwd", "utils.sh", "sh", "-c", "echo before; exit 7")
    assert run.returncode == 1
    assert "before" in run.stdout + run.stderr
    assert "Traceback" not in run.stderr
