"""Tests of torchx_apps.distributed with gloo, in one process and in several."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

from torchx_apps import distributed as dist

WORKER = str(Path(__file__).with_name("gloo_worker.py"))
LAUNCHER_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
)
TIMEOUT = 120  # How long a test waits for each process, in seconds.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    return {**inherited, "OMP_NUM_THREADS": "1", **more}


def run_all(commands: list[tuple[list[str], dict[str, str]]]) -> None:
    """Run processes in parallel; if one fails, fail with its output."""
    processes = [
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command, env in commands
    ]
    try:
        outputs = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output


def reports(folder: Path) -> list[dict[str, Any]]:
    """Return the observations of the processes, in the order of their ranks."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run two agents of torchrun with two processes each; return the observations of all four."""
    folder = tmp_path_factory.mktemp("two_nodes")
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2"]
    agent += ["--rdzv_backend=c10d", f"--rdzv_endpoint=localhost:{free_port()}"]
    agent += ["--rdzv_id=test", WORKER, str(folder)]
    run_all([(agent, environment())] * 2)
    return reports(folder)


def test_ranks_and_sizes_of_two_nodes(two_nodes: list[dict[str, Any]]) -> None:
    seen = [
        (one["rank"], one["world_size"], one["local_rank"], one["is_rank0"], one["is_local_rank0"])
        for one in two_nodes
    ]
    assert seen == [
        (0, 4, 0, True, True),
        (1, 4, 1, False, False),
        (2, 4, 0, False, True),
        (3, 4, 1, False, False),
    ]
    assert [one["node"] for one in two_nodes] == [0, 0, 1, 1]
    assert [one["before"] for one in two_nodes] == [
        {"rank": rank, "world_size": 4} for rank in range(4)
    ]


def test_device_is_the_cpu_with_gloo(two_nodes: list[dict[str, Any]]) -> None:
    assert {(one["device"], one["local_device"], one["backend"]) for one in two_nodes} == {
        ("cpu", "cpu", "gloo")
    }


@pytest.mark.parametrize("scene", ["job", "each node", "again0", "again1", "again2"])
def test_first_process_finishes_before_the_others_begin(
    scene: str, two_nodes: list[dict[str, Any]]
) -> None:
    assert [one[scene] for one in two_nodes] == [True] * 4


def test_failure_of_the_first_process_releases_the_others(two_nodes: list[dict[str, Any]]) -> None:
    assert [one["after failure"] for one in two_nodes] == [
        "the first process fails",
        *["through"] * 3,
    ]


def test_context_works_on_one_node_only(two_nodes: list[dict[str, Any]]) -> None:
    assert [one.get("one node only") for one in two_nodes] == [True, True, None, None]
    assert {one["sum of ranks"] for one in two_nodes} == {6.0}


def test_ranks_are_read_from_the_variables_of_another_launcher(tmp_path: Path) -> None:
    """Set RANK and similar variables, as scripts for srun and mpirun do."""
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    command = [sys.executable, WORKER, str(tmp_path)]
    run_all(
        [(command, environment(RANK=str(rank), LOCAL_RANK=str(rank), **job)) for rank in range(2)]
    )
    seen = reports(tmp_path)
    assert [(one["rank"], one["world_size"], one["sum of ranks"]) for one in seen] == [
        (0, 2, 1.0),
        (1, 2, 1.0),
    ]
    assert [one["job"] for one in seen] == [True, True]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the variables of launchers; after the test, destroy the process group."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_group_of_one_process_uses_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")  # This address is unreachable.
    monkeypatch.setenv("MASTER_PORT", "1")
    device = dist.init_pg()
    assert (dist.rank(), dist.world_size()) == (0, 1)
    assert device == dist.local_device()
    total = torch.tensor(3.0)
    torch.distributed.all_reduce(total)
    assert total.item() == 3.0
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("192.0.2.1", "1")


@pytest.mark.usefixtures("alone")
def test_missing_master_address_is_set() -> None:
    dist.init_pg("gloo")
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("localhost", "0")


@pytest.mark.usefixtures("alone")
def test_arguments_of_the_caller_win() -> None:
    store = torch.distributed.HashStore()
    dist.init_pg("gloo", store=store, rank=0, world_size=1)
    with dist.on_rank0_first():
        pass
    assert "MASTER_ADDR" not in os.environ


@pytest.mark.usefixtures("alone")
def test_group_can_be_created_again() -> None:
    for _ in range(2):
        dist.init_pg("gloo")
        with dist.on_rank0_first(), dist.on_local_rank0_first():
            pass
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_assumed_local_rank_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dist.local_rank() == 0  # There is no process group.
        dist.init_pg("gloo")
        assert dist.local_rank() == 0  # The group has only this process.
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.warns(UserWarning, match="LOCAL_RANK is not set"):
        assert dist.local_rank() == 0


DESTROY_GROUP = """
import os, torch
from torch.nn.parallel import DistributedDataParallel
from torchx_apps import distributed as dist

dist.init_pg("gloo")
model = DistributedDataParallel(torch.nn.Linear(2, 1))
model(torch.rand(3, 2)).sum().backward()
before = len(os.listdir("/proc/self/task"))
del model
torch.distributed.destroy_process_group()
print(before, len(os.listdir("/proc/self/task")))
"""


def test_destroyed_group_leaves_no_thread() -> None:
    """Check the number of threads: a remaining thread of gloo would abort the process on exit."""
    env = environment()
    done = subprocess.run(
        [sys.executable, "-c", DESTROY_GROUP], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert before > 1
    assert after == 1
