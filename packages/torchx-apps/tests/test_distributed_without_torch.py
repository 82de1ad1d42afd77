"""Tests of the module ``distributed`` without torch; integration/pytorch tests it with torch."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from torchx_apps import distributed


@pytest.fixture(autouse=True)
def no_torch_and_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing torch fails
    monkeypatch.setitem(sys.modules, "torch.distributed", None)


@pytest.fixture
def torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make imports of torch fail as if torch were not installed.

    None in ``sys.modules`` is not enough: the error then names ``torch.distributed``, not torch.
    """

    class AbsentMockFinder:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name.partition(".")[0] == "torch":
                raise ModuleNotFoundError(f"No module named {name!r}", name="torch")

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delitem(sys.modules, "torch.distributed")
    monkeypatch.setattr(sys, "meta_path", [AbsentMockFinder(), *sys.meta_path])


@pytest.mark.usefixtures("torch_is_missing")
@pytest.mark.parametrize(
    ("environment", "rank", "world_size", "local_rank"),
    [
        ({}, 0, 1, 0),
        ({"RANK": "", "WORLD_SIZE": "", "LOCAL_RANK": ""}, 0, 1, 0),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, 5, 8, 1),
        ({"RANK": "4", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, 4, 8, 0),
    ],
)
def test_ranks_are_read_from_the_environment(
    environment: dict[str, str],
    rank: int,
    world_size: int,
    local_rank: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert distributed.rank() == rank
    assert distributed.world_size() == world_size
    assert distributed.local_rank() == local_rank
    assert distributed.is_rank0() == (rank == 0)
    assert distributed.is_local_rank0() == (local_rank == 0)


@pytest.mark.usefixtures("torch_is_missing")
@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
def test_rank_that_is_not_a_number_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "two")
    reader = {
        "RANK": distributed.rank,
        "WORLD_SIZE": distributed.world_size,
        "LOCAL_RANK": distributed.local_rank,
    }[name]
    with pytest.raises(ValueError, match=f"environment variable {name} is 'two'"):
        reader()


@pytest.mark.usefixtures("torch_is_missing")
@pytest.mark.parametrize("rank", ["0", "1"])
def test_rank0_first_does_not_wait_without_a_group(
    rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("LOCAL_RANK", rank)
    ran = []
    with distributed.on_rank0_first():
        ran.append("job")
    with distributed.on_local_rank0_first():
        ran.append("node")
    assert ran == ["job", "node"]


@pytest.mark.usefixtures("torch_is_missing")
def test_has_no_cuda_devices_without_torch() -> None:
    assert distributed.has_cuda_devices() is False


def test_broken_torch_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        distributed.rank()


def test_names_of_backends() -> None:
    assert set(get_args(distributed.Backend)) == {"nccl", "gloo", "auto"}


def test_import_does_not_import_torch() -> None:
    code = (
        "import sys, torchx_apps.distributed, torchx_apps.results;"
        "print(sorted({'torch', 'fsspec', 'subprocess', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
