"""The command ``torchx`` on a real Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
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


def test_unknown_partition_exits_with_3(torchx: Torchx) -> None:
    done = torchx("run", "-s", "slurm", "-cfg", "partition=nope", "utils.echo")
    assert done.returncode == 3
    assert done.stderr.count("invalid partition specified: nope") == 1
    assert "Traceback" not in done.stderr


def test_missing_job_exits_with_1(torchx: Torchx) -> None:
    assert torchx("status", "slurm://torchx/4000000").returncode == 1
    assert torchx("log", "slurm://torchx/4000000").returncode == 1
