"""Tests of sweeps on ``local_cwd`` whose clients are killed by SIGKILL at random moments.

``TORCHX_SWEEP_KILLS`` is the number of clients that are killed (default: 60), and
``TORCHX_SWEEP_ELEMENTS`` the size of the largest sweep (default: 150).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from torchx_sweep import ElementState, results, statuses, wait

KILLS = int(os.environ.get("TORCHX_SWEEP_KILLS", "60"))
ELEMENTS = int(os.environ.get("TORCHX_SWEEP_ELEMENTS", "150"))
SMALL = 10

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def write(n: int, out: str) -> AppDef:
    """Append a number to a file.

    Args:
        n: The number.
        out: The file.
    """
    role = Role("main", image="", entrypoint="sh", args=["-c", f"echo {n} >> {out}"])
    role.resource = Resource(cpu=1, gpu=0, memMB=1)
    return AppDef("write", roles=[role])
'''


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "torchx_cli", "sweep", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def create(out: Path, count: int) -> subprocess.Popen[bytes]:
    return start("comp.py:write", "--out", str(out), "--grid", f"n=0:{count}")


def kill_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Kill a child process, and return False if it ended before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def numbers(file: Path) -> Counter[int]:
    return Counter(int(line) for line in file.read_text().split()) if file.exists() else Counter()


def test_killed_clients_submit_each_element_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comp.py").write_text(COMPONENT)
    generator = random.Random(18)  # noqa: S311 - no cryptography
    assert create(tmp_path / "big", ELEMENTS).wait(600) == 0
    (big,) = statuses()
    kills = created = 0
    while kills < KILLS:
        choice = generator.random()
        if choice < 0.2:
            client = create(tmp_path / f"small{created}", SMALL)
            created += 1
        else:
            words = [["status"], ["results"], ["wait"], ["rerun", "--failed"]]
            handle = generator.choice(statuses()).handle
            client = start(*generator.choice(words), handle)
        kills += kill_after(client, generator.uniform(0.05, 1.0))
    for status in statuses():
        count = ELEMENTS if status.handle == big.handle else SMALL
        assert wait(status.handle, timeout=1800).counts == {ElementState.SUCCEEDED: count}
        assert all(element.attempt == 0 for element in results(status.handle))
    assert numbers(tmp_path / "big") == Counter(range(ELEMENTS))
    small = [numbers(tmp_path / f"small{i}") for i in range(created)]
    recorded = [written for written in small if written]
    assert len(recorded) == len(statuses()) - 1
    assert all(written == Counter(range(SMALL)) for written in recorded)
    print(f"{kills} clients killed, {len(recorded)} of {created} small sweeps were recorded")
