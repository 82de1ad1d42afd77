"""The pool of these tests: it runs jobs on its nodes, and no process outlives it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import htcondor as service
import pytest
import service_process

from patience import wait_for

SUBMIT = """\
executable = /bin/bash
arguments = "-c '{line}'"
should_transfer_files = NO
queue {count}
"""
FIELDS = "JobStatus,ExitCode,ExitBySignal"


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def submit(line: str, count: int = 1) -> str:
    """Submit jobs that run a line of bash, and return their cluster."""
    Path("job.sub").write_text(SUBMIT.format(line=line, count=count))
    return run("condor_submit", "-terse", "job.sub").partition(".")[0]


def test_jobs_end_with_their_exit_codes(pool: Path) -> None:
    cluster = submit("exit 130", 2)
    query = ("condor_history", "-json", "-attributes", FIELDS, cluster)
    ended = wait_for(lambda: len(found := json.loads(run(*query))) == 2 and found)
    assert ended == [{"ExitBySignal": False, "ExitCode": 130, "JobStatus": 4}] * 2


def test_stop_ends_jobs_with_the_pool(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submit("setsid sleep 600 & echo $$ $! > pids; wait")
    file = tmp_path / "pids"
    pids = wait_for(lambda: file.read_text().split() if file.exists() else [])
    running = [*map(int, pids), *service_process.recorded_pids(own).values()]
    assert all(map(service_process.is_alive, running))
    service.stop(own)
    wait_for(lambda: not any(map(service_process.is_alive, running)))
