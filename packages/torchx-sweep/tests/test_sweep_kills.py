"""Tests with SIGKILLs of clients and drivers at random moments, and of the lock of drivers.

These variables make the tests longer: ``TORCHX_SWEEP_KILLS`` is the number of processes that each
test starts in order to kill them, and ``TORCHX_SWEEP_SEED`` selects the moments of the kills.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import command, numbers

from torchx_runner import get_runner
from torchx_sweep import ElementState, api, rerun, results, statuses, sweep, wait
from torchx_sweep.drivers import process

KILLS = int(os.environ.get("TORCHX_SWEEP_KILLS", "12"))
SEED = int(os.environ.get("TORCHX_SWEEP_SEED", "18"))
# The longest time of a driver that is not killed, in seconds.
LONGEST = 900
_ELEMENTS = 12


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command("sweep", *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Kill a child process after some seconds, unless the process has ended by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_a_killed_client_submits_everything_once_or_nothing(tmp_path: Path) -> None:
    generator = random.Random(SEED)  # noqa: S311 - no cryptography
    for i in range(KILLS):
        words = ["comp.py:train", "--out", str(tmp_path / f"out{i}"), "--sleep", "0.01"]
        client = start(*words, "--grid", f"n=0:{_ELEMENTS}")
        kill_after(client, generator.uniform(0.1, 1.2))
        if found := statuses():
            kill_after(start("status", found[0].handle), generator.uniform(0.1, 0.6))
    recorded = {status.handle: wait(status.handle, timeout=300) for status in statuses()}
    for status in recorded.values():
        assert status.counts == {ElementState.SUCCEEDED: _ELEMENTS}
    written = [numbers(tmp_path / f"out{i}") for i in range(KILLS)]
    everything = list(range(_ELEMENTS))
    assert sorted(filter(None, written)) == [everything] * len(recorded)


@pytest.mark.parametrize(
    ("is_dedicated", "count", "sleep"),
    [(True, 60, "0.02"), (False, 60, "0.02"), (True, 400, "0")],
)
def test_a_killed_driver_loses_no_element_and_repeats_none(
    home: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_dedicated: bool,
    count: int,
    sleep: str,
) -> None:
    monkeypatch.setattr(api, "ensure_driver", lambda store, sweep_id: None)
    with get_runner() as runner:
        words = ["--out", str(out), "--sleep", sleep]
        handle = sweep(runner, "comp.py:train", words, grid=[f"n=0:{count}"], max_parallel=4)
    sweep_id = handle.rpartition("/")[2]
    arguments = f"{sweep_id!r}, is_dedicated={is_dedicated}"
    code = f"from torchx_sweep.drivers.process import drive; drive({arguments})"
    generator = random.Random(SEED)  # noqa: S311 - no cryptography
    kills = 0
    for _ in range(KILLS):
        driver = subprocess.Popen([sys.executable, "-c", code])
        kill_after(driver, generator.uniform(0.2, 1.2))
        kills += driver.returncode == -signal.SIGKILL
    assert kills
    print(f"{kills} kills of drivers")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONGEST)
    ended = results(handle)
    assert len(ended) == count
    written = numbers(out)
    assert len(written) == len(set(written)), "an element ran twice"
    for element in ended:
        assert element.attempt == 0
        if element.state is ElementState.SUCCEEDED:
            assert element.number in written
        else:
            assert element.state is ElementState.FAILED
            assert "the driver of the sweep was killed" in element.reason
    with get_runner() as runner:
        assert len(runner.list("local_cwd")) == count
    rerun(handle)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONGEST)
    assert {element.state for element in results(handle)} == {ElementState.SUCCEEDED}
    assert set(numbers(out)) == set(range(count))


def test_a_client_that_tests_the_lock_stops_no_new_driver(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "ensure_driver", lambda store, sweep_id: None)
    with get_runner() as runner:
        handle = sweep(runner, "comp.py:train", ["--out", str(out)], grid={"n": [1, 2]})
    sweep_id = handle.rpartition("/")[2]
    lock = process.locked(sweep_id)
    assert lock.__enter__()
    sleep = process.time.sleep

    def release_lock(seconds: float) -> None:
        monkeypatch.setattr(process.time, "sleep", sleep)
        lock.__exit__(None, None, None)

    monkeypatch.setattr(process.time, "sleep", release_lock)
    process.drive(sweep_id)
    assert numbers(out) == [1, 2]


def test_a_second_driver_leaves_the_sweep_to_the_first(out: Path) -> None:
    with get_runner() as runner:
        handle = sweep(runner, "comp.py:train", ["--out", str(out)], grid={"n": range(8)})
    process.drive(handle.rpartition("/")[2])
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 8}
    assert numbers(out) == list(range(8))


def test_a_client_that_waits_for_a_slow_start_starts_one_driver(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PROGRAM", f"import time; time.sleep(2)\n{process._PROGRAM}")
    started: list[object] = []

    class CountedPopen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            started.append(args)
            super().__init__(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(process.subprocess, "Popen", CountedPopen)
        with get_runner() as runner:
            handle = sweep(runner, "comp.py:train", ["--out", str(out)], grid={"n": [1, 2]})
        assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 2}
    assert len(started) == 1
    rerun(handle, [ElementState.SUCCEEDED])
    wait(handle, timeout=300)
    assert numbers(out) == [1, 1, 2, 2]
