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


def ended(cluster: str, count: int = 1) -> list[dict[str, object]]:
    """Wait for the ends of the jobs of a cluster, and return their fields in the history."""
    query = ("condor_history", "-json", "-attributes", FIELDS, cluster)
    wait_for(lambda: len(json.loads(run(*query))) == count)
    found: list[dict[str, object]] = json.loads(run(*query))
    return found


def test_jobs_end_with_their_exit_codes(pool: Path) -> None:
    end = {"ExitBySignal": False, "ExitCode": 130, "JobStatus": 4}
    assert ended(submit("exit 130", 2), 2) == [end] * 2


def test_job_survives_the_crash_of_the_schedd(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = submit("echo start >> starts; until [ -e go ]; do sleep 0.1; done")
    wait_for((tmp_path / "starts").exists)
    service.kill(own, "schedd")
    service.start_schedd(own)
    (tmp_path / "go").touch()
    assert ended(cluster) == [{"ExitBySignal": False, "ExitCode": 0, "JobStatus": 4}]
    assert (tmp_path / "starts").read_text() == "start\n"


def test_stop_ends_jobs_with_the_pool(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submit("setsid sleep 86400 & echo $$ $! > pids; wait")
    file = tmp_path / "pids"
    pids = wait_for(lambda: file.read_text().split() if file.exists() else [])
    running = [*map(int, pids), *service_process.recorded_pids(own).values()]
    assert all(map(service_process.is_alive, running))
    service.stop(own)
    wait_for(lambda: not any(map(service_process.is_alive, running)))
