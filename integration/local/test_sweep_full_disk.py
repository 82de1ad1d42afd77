"""Tests a sweep whose file system becomes full and later has room again; the test needs root."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patience import wait_for
from torchx_sweep import ElementState, results, status, wait

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def write(n: int, out: str) -> AppDef:
    """Append a number to a file.

    Args:
        n: The number.
        out: The file.
    """
    role = Role("main", image="", entrypoint="sh", args=["-c", f"echo {n} >> {out}; sleep 0.3"])
    role.resource = Resource(cpu=1, gpu=0, memMB=1)
    return AppDef("write", roles=[role])
'''


@pytest.fixture
def small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> Iterator[Path]:
    """Mount a small file system in which sweeps keep their database, and yield its folder."""
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    environment["TORCHX_HOME"] = str(tmp_path / "torchx")
    folder = tmp_path / "torchx" / "sweeps"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def numbers(out: Path) -> list[int]:
    return [int(line) for line in out.read_text().split()] if out.exists() else []


def fill(folder: Path) -> Path:
    """Write a file until the file system is full, and return the path of the file."""
    path = folder / "ballast"
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


def test_a_sweep_goes_on_when_a_full_disk_has_room_again(
    small: Path, tmp_path: Path, torchx: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    component, out = tmp_path / "comp.py", tmp_path / "out"
    component.write_text(COMPONENT)
    words = [f"{component}:write", "--out", str(out), "--grid", "n=0:30"]
    started = torchx("sweep", *words, "--max-parallel", "2")
    assert started.returncode == 0, started.stderr
    handle = started.stdout.strip()
    wait_for(lambda: len(numbers(out)) >= 4)
    ballast = fill(small)
    log = small / f"{handle.rpartition('/')[2]}.log"
    time.sleep(4)
    found = status(handle)  # a query needs no room
    assert found.counts.get(ElementState.SUCCEEDED, 0) < 30
    refused = torchx("sweep", *words)
    assert refused.returncode == 3
    assert "full" in refused.stderr
    ballast.unlink()
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 30}, log.read_text()
    assert Counter(numbers(out)) == Counter(range(30))
    assert {element.attempt for element in results(handle)} == {0}
