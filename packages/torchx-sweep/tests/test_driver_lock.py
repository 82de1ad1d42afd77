"""Tests of the lock with which one driver at a time drives a sweep."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import numbers

from torchx_runner import get_runner
from torchx_sweep import ElementState, rerun, status, sweep, wait
from torchx_sweep.drivers import process


def test_a_second_driver_leaves_the_sweep_to_the_first(out: Path) -> None:
    with get_runner() as runner:
        handle = sweep(runner, "comp.py:train", ["--out", str(out)], grid={"n": range(8)})
    process.drive(handle.rpartition("/")[2])
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 8}
    assert numbers(out) == list(range(8))


def test_a_client_that_waits_for_a_slow_start_starts_one_driver(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo("go")
    started: list[object] = []

    class CountedPopen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            started.append(args)
            super().__init__(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(process.subprocess, "Popen", CountedPopen)
        patch.setattr(process, "_PROGRAM", f"open('go').close()\n{process._PROGRAM}")
        with get_runner() as runner:
            handle = sweep(runner, "comp.py:train", ["--out", str(out)], grid={"n": [1, 2]})
        for _ in range(3):
            assert status(handle).is_unfinished
        Path("go").write_text("")
        assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 2}
    assert len(started) == 1
    rerun(handle, [ElementState.SUCCEEDED])
    wait(handle, timeout=300)
    assert numbers(out) == [1, 1, 2, 2]
