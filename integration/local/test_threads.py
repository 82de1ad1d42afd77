"""Tests of a process whose threads use TorchX for the first time at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

THREADS = 32
HEAD = f"""
import asyncio, sys, threading
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-6)
barrier = threading.Barrier({THREADS})
def together(function):
    with ThreadPoolExecutor({THREADS}) as pool:
        return list(pool.map(lambda i: (barrier.wait(), function(i))[1], range({THREADS})))
"""
APPS = """
from torchx.specs import AppDef, Role
from torchx.runner import get_runner
def submit(i):
    with get_runner() as runner:
        role = Role("r", image=".", entrypoint="true")
        return runner.wait(runner.run(AppDef("a", [role]), "local_cwd"), 0.1).state.name
print(*together(submit))
"""
COMPONENTS = """
from torchx.runner import get_runner
def submit(i):
    with get_runner() as runner:
        handle = runner.run_component("utils.echo", ["--msg", str(i)], "local_cwd")
        return runner.wait(handle, 0.1).state.name
print(*together(submit))
"""
ASYNC = f"""
from torchx_runner import AsyncRunner, get_runner
async def main():
    async with AsyncRunner(get_runner()) as runner:
        run = lambda i: runner.run_component("utils.echo", ["--msg", str(i)], "local_cwd")
        handles = await asyncio.gather(*map(run, range({THREADS})))
        return [(await runner.wait(handle, 0.1)).state.name for handle in handles]
print(*asyncio.run(main()))
"""


@pytest.mark.parametrize("code", [APPS, COMPONENTS, ASYNC], ids=["apps", "components", "async"])
def test_the_first_submissions_of_a_process_may_be_in_many_threads(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", HEAD + code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout.split(), done.stderr) == (["SUCCEEDED"] * THREADS, "")
