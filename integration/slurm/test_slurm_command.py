"""The command ``torchx`` on a real Slurm."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import slurm as service
from slurm_jobs import Cluster

Torchx = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def environment(environment: dict[str, str], cluster: Cluster) -> dict[str, str]:
    return {**environment, **cluster.variables}


def test_run_status_log_and_list(torchx: Torchx) -> None:
    done = torchx("run", "--wait", "-s", "slurm", "utils.echo", "--msg", "hi", "--num_replicas", 2)
    assert done.returncode == 0, done.stderr
    handle = re.search(r"slurm://torchx/\d+", done.stdout + done.stderr)
    assert handle is not None
    assert "SUCCEEDED" in torchx("status", handle[0]).stdout
    log = torchx("log", handle[0])
    assert log.returncode == 0, log.stderr
    assert log.stdout.count("hi") == 2
    listed = torchx("list", "-s", "slurm").stdout
    assert handle[0] in listed


def test_failed_job_exits_with_1(torchx: Torchx) -> None:
    done = torchx("run", "--wait", "-s", "slurm", "utils.sh", "exit", "3")
    assert done.returncode == 1, done.stderr


def test_unknown_partition_exits_with_2(torchx: Torchx) -> None:
    done = torchx("run", "-s", "slurm", "-cfg", "partition=nope", "utils.echo")
    assert done.returncode == 2
    assert done.stderr.count("invalid partition specified: nope") == 1
    assert "Traceback" not in done.stderr


def test_missing_job_exits_with_1(torchx: Torchx) -> None:
    assert torchx("status", "slurm://torchx/4000000").returncode == 1
    assert torchx("log", "slurm://torchx/4000000").returncode == 1


def test_list_reports_a_controller_that_is_down_within_10_s(
    own: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    service.kill_controller(own.folder)
    command = [Path(sys.executable).parent / "torchx", "list", "-s", "slurm"]
    started = time.monotonic()
    with subprocess.Popen(
        command,
        env={**environment, **own.variables},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        elapsed = time.monotonic() - started
        process.kill()
    assert "squeue has not answered" in line
    assert elapsed < 10
