"""The command ``torchx`` on a real Slurm."""

from __future__ import annotations

import os
import re
import signal
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


@pytest.mark.parametrize("command", ["list", "status", "cancel"])
def test_a_controller_that_is_down_ends_commands_within_10_s(
    own: Cluster, environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    service.kill_controller(own.folder)
    target = ["-s", "slurm"] if command == "list" else ["slurm://torchx/1"]
    started = time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).parent / "torchx", command, *target],
        env={**environment, **own.variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert time.monotonic() - started < 10
    assert done.returncode == 3
    assert re.search(r"scontrol ping: Slurmctld\(primary\) at \S+ is DOWN", done.stderr)
    assert "Traceback" not in done.stderr


def test_a_slow_controller_is_waited_for(
    own: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    pid = service._pids(own.folder)["slurmctld"]
    os.kill(pid, signal.SIGSTOP)  # connections are accepted, and nothing answers
    try:
        with subprocess.Popen(
            [Path(sys.executable).parent / "torchx", "list", "-s", "slurm"],
            env={**environment, **own.variables},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            # the warning comes after the first, short query
            assert "squeue has not answered" in process.stderr.readline()
            os.kill(pid, signal.SIGCONT)
            assert process.wait(60) == 0
    finally:
        os.kill(pid, signal.SIGCONT)
