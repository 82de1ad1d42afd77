"""Tests of sweeps on ``local_cwd`` whose processes are killed by SIGKILL at random moments.

``TORCHX_SWEEP_KILLS`` is the number of clients that are killed (default: 60),
``TORCHX_SWEEP_ELEMENTS`` the size of the largest sweep (default: 150), and ``TORCHX_SWEEP_SEED``
selects the moments (default: 18).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from local_supervisors import supervisors
from patience import wait_for
from torchx_runner import get_runner
from torchx_sweep import ElementState, api, rerun, results, statuses, sweep, wait

KILLS = int(os.environ.get("TORCHX_SWEEP_KILLS", "60"))
ELEMENTS = int(os.environ.get("TORCHX_SWEEP_ELEMENTS", "150"))
SEED = int(os.environ.get("TORCHX_SWEEP_SEED", "18"))
SMALL = 10

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def write(n: int, out: str, sleep: float = 0.0) -> AppDef:
    """Append a number to a file.

    Args:
        n: The number.
        out: The file.
        sleep: Seconds before the end.
    """
    role = Role("main", image="", entrypoint="sh", args=["-c", f"echo {n} >> {out}; sleep {sleep}"])
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


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new folder with a component file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comp.py").write_text(COMPONENT)


def test_killed_clients_submit_each_element_exactly_once(tmp_path: Path) -> None:
    generator = random.Random(SEED)  # noqa: S311 - no cryptography
    begun = time.monotonic()
    assert create(tmp_path / "big", ELEMENTS).wait() == 0
    longest = 1.2 * (time.monotonic() - begun)  # most clients are killed, and some end before
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
        kills += kill_after(client, generator.uniform(0.05, longest))
    for status in statuses():
        count = ELEMENTS if status.handle == big.handle else SMALL
        assert wait(status.handle).counts == {ElementState.SUCCEEDED: count}
        assert all(element.attempt == 0 for element in results(status.handle))
    assert numbers(tmp_path / "big") == Counter(range(ELEMENTS))
    small = [numbers(tmp_path / f"small{i}") for i in range(created)]
    recorded = [written for written in small if written]
    assert len(recorded) == len(statuses()) - 1
    assert all(written == Counter(range(SMALL)) for written in recorded)
    print(f"{kills} clients killed, {len(recorded)} of {created} small sweeps were recorded")


@pytest.mark.parametrize("victim", ["driver", "supervisor"])
def test_a_kill_loses_no_element_and_repeats_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    monkeypatch.setattr(api, "ensure_driver", lambda store, sweep_id: None)
    generator = random.Random(SEED)  # noqa: S311 - no cryptography
    kills = 0
    codes = {}
    for number in range(KILLS // 5):
        out = tmp_path / f"out{number}"
        with get_runner() as runner:
            words = ["--out", str(out), "--sleep", "0.02"]
            handle = sweep(runner, "comp.py:write", words, grid=[f"n=0:{SMALL}"], max_parallel=4)
        code = f"from torchx_sweep.drivers.process import drive; drive({handle[-8:]!r})"
        codes[handle] = code
        driver = subprocess.Popen([sys.executable, "-c", code])
        if victim == "driver":
            kills += kill_after(driver, generator.uniform(0.2, 1.5))
        else:
            pids = wait_for(lambda: supervisors(str(tmp_path)), pause=0)
            time.sleep(generator.uniform(0, 0.2))
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
            driver.wait()
    assert kills
    lost = 0
    for number, (handle, code) in enumerate(codes.items()):
        subprocess.run([sys.executable, "-c", code], check=True)
        written = numbers(tmp_path / f"out{number}")
        assert set(written.values()) <= {1}, "an element ran twice"
        for element in results(handle):
            assert element.attempt == 0
            if element.state is ElementState.SUCCEEDED:
                assert element.number in written
                continue
            lost += element.number in written
            if victim == "driver":
                assert element.state is ElementState.FAILED
                assert "the driver of the sweep was killed" in element.reason
            else:
                assert element.state is ElementState.CANCELLED
    print(f"{kills} kills; {lost} elements were killed after they had written")
    with get_runner() as runner:
        assert len(runner.list("local_cwd")) == SMALL * len(codes)
    for handle, code in codes.items():
        rerun(handle)
        subprocess.run([sys.executable, "-c", code], check=True)
        assert {element.state for element in results(handle)} == {ElementState.SUCCEEDED}
