"""Tests of finding, watching and repeating local jobs, as a user does on a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ERROR_FILE = """
import json, os, sys
error = {"message": {"message": "CUDA out of memory", "extraInfo": {"timestamp": "1700000001"}}}
if os.environ["TORCHX_REPLICA"] == "1":
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump(error, file)
    sys.exit(7)
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return the working directory of the command, with a component."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    (folder / "comp.py").write_text(
        '''
import sys

from torchx_specs import AppDef, Resource, Role


def job(name: str, code: str, replicas: int = 1) -> AppDef:
    """Run Python code.

    Args:
        name: Name of the app.
        code: The code.
        replicas: Number of replicas.
    """
    role = Role("main", image="", entrypoint=sys.executable, args=["-c", code])
    role.env["TORCHX_REPLICA"] = "${replica_id}"
    role.num_replicas, role.resource = replicas, Resource(cpu=1, gpu=0, memMB=64)
    return AppDef(name, [role])
'''
    )
    return folder


@pytest.fixture
def submit(torchx: Any, work: Path) -> Callable[..., str]:
    """Return a function that submits a job in the background and returns its handle."""

    def run(name: str, code: str, *words: str) -> str:
        arguments = ["comp.py:job", "--name", name, "--code", code, *words]
        done = torchx("run", "-s", "local_cwd", "--detach", *arguments)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    return run


def test_a_user_finds_and_ends_the_last_jobs(
    submit: Callable[..., str], torchx: Any, on_terminal: Any
) -> None:
    done = submit("quick", "print('hello')")
    assert torchx("wait", done).returncode == 0
    running = submit("train", "import time; print('started', flush=True); time.sleep(600)")
    with on_terminal("list", "-s", "local_cwd") as screen:
        assert screen.finish() == 0
    header, first, second = screen.shown.splitlines()
    assert header.split()[:6] == ["APP", "HANDLE", "APP", "NAME", "APP", "STATUS"]
    assert re.match(rf"{re.escape(running)}\s+train\s+RUNNING\s+\d+ s\s+\d+ s\s*$", first)
    assert re.match(rf"{re.escape(done)}\s+quick\s+SUCCEEDED\s+.* s\s+0\s*$", second)
    assert "\x1b[" in screen.raw  # colours
    with on_terminal("list", "-s", "local_cwd", NO_COLOR="1") as screen:
        assert screen.finish() == 0
    assert "\x1b[36m" not in screen.raw
    with on_terminal("log", "-t", "train/main/0") as screen:
        screen.expect("started")
    assert torchx("log", "@2/main/0").stdout == "main/0 hello\n"
    start = running.rpartition("/")[2][:-3]
    with on_terminal("status", f"local_cwd://{start}") as screen:
        assert screen.finish() == 0
    assert f"is {running}" in screen.shown
    assert "\nRUNNING for " in f"\n{screen.shown}"
    assert torchx("cancel", "@1").returncode == 0
    assert json.loads(torchx("wait", "--json", "train").stdout)["state"] == "CANCELLED"
    assert torchx("status", "@3").returncode == 1


def test_a_user_watches_a_job_until_it_fails(
    submit: Callable[..., str], on_terminal: Any, tmp_path: Path, torchx: Any
) -> None:
    go = tmp_path / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
    handle = submit("fails", wait + ERROR_FILE, "--replicas", "3")
    with on_terminal("status", "--watch", "fails") as screen:
        screen.expect("RUNNING for ")
        go.touch()
        assert screen.finish() == 0
    assert re.search(
        r"FAILED after \d+ s: main/1 on \S+: exit code 7, CUDA out of memory", screen.shown
    )
    assert re.search(r"\x1b\[\d+F", screen.raw)  # the text was replaced in place
    with on_terminal("status", "--watch", "fails", TERM="dumb") as screen:
        assert screen.finish() == 0
    assert not re.search(r"\x1b\[\d+F", screen.raw)
    data = json.loads(torchx("status", "--json", handle).stdout)
    assert data["first_failure"]["exit_code"] == 7
    assert data["started"] <= data["ended"]


def test_a_user_repeats_a_job_with_another_value(
    submit: Callable[..., str], torchx: Any, on_terminal: Any, work: Path
) -> None:
    first = submit("train", "import os; print(os.environ.get('LR', 'none'))")
    torchx("wait", first)
    (work / "comp.py").unlink()
    with on_terminal("rerun", "@1", "--detach", "--set", "env.LR=0.1") as screen:
        assert screen.finish() == 0
    assert torchx("wait", "@1").returncode == 0
    assert torchx("log", "@1").stdout == "main/0 0.1\n"
    with on_terminal("diff", "@1") as screen:
        assert screen.finish() == 0
    assert 'app.roles.main.env.LR: (absent) -> "0.1"' in screen.shown
    with on_terminal("history") as screen:
        assert screen.finish() == 0
    lines = screen.shown.splitlines()
    assert lines[1].startswith("@1")
    assert "torchx rerun @1 --detach --set env.LR=0.1" in lines[1]
    assert first in lines[2]
    missing = torchx("rerun", "local_cwd://torchx/missing")
    assert missing.returncode == 2
    assert "is not in the journal" in missing.stderr
