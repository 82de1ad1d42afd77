"""Tests of copies of local jobs' logs: a killed copying process loses and doubles no line."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from patience import wait_for

WRITER = """
import os, sys, time
replica = os.environ["TORCHX_REPLICA_ID"]
number = 0
while not os.path.exists(sys.argv[1]):
    for _ in range(20):
        number += 1
        stream = sys.stderr if number % 3 == 0 else sys.stdout
        print(f"{replica}: line {number} {'x' * (number % 200)}", file=stream, flush=True)
    time.sleep(0.01)
print(f"{replica}: {number} lines")
"""
COMPONENT = '''
import sys

from torchx_specs import AppDef, Resource, Role


def job(program: str, end: str) -> AppDef:
    """Run two replicas of a program.

    Args:
        program: The program.
        end: The file that ends it.
    """
    role = Role("main", image="", entrypoint=sys.executable, args=[program, end])
    role.env["TORCHX_REPLICA_ID"] = "${replica_id}"
    role.num_replicas, role.resource = 2, Resource(cpu=1, gpu=0, memMB=64)
    return AppDef("job", [role])
'''


@pytest.fixture
def work(torchx: Any, tmp_path: Path) -> Path:
    """Return the working directory of the command, with a log sink, a component and a program."""
    folder = tmp_path / "work"
    (folder / ".torchxconfig").write_text(f"[log_sink:disk]\nurl = file://{tmp_path}/copies\n")
    (folder / "comp.py").write_text(COMPONENT)
    (folder / "program.py").write_text(WRITER)
    return folder


def job(work: Path, end: Path) -> list[object]:
    """Return the arguments of the component."""
    return ["--program", work / "program.py", "--end", end]


def check(text: str) -> None:
    """Raise unless a log has each line of both replicas exactly once, and no incomplete line."""
    for replica in ("0", "1"):
        prefix = f"main/{replica} {replica}: "
        lines = [x.removeprefix(prefix) for x in text.splitlines() if x.startswith(prefix)]
        count = int(lines[-1].split()[0])
        numbers = [int(line.split()[1]) for line in lines[:-1]]
        assert sorted(numbers) == list(range(1, count + 1))
        assert all(line.endswith("x" * (n % 200)) for n, line in zip(numbers, lines, strict=False))


def saved_bytes(work: Path) -> int:
    """Return the size of all segments in the sink."""
    return sum(path.stat().st_size for path in (work.parent / "copies").rglob("*.log"))


def test_killed_processes_lose_and_double_no_line(
    torchx: Any, work: Path, environment: dict[str, str]
) -> None:
    end = work / "end"
    ran = torchx("run", "-s", "local_cwd", "--detach", "comp.py:job", *job(work, end))
    assert ran.returncode == 0, ran.stderr
    handle = ran.stdout.strip()
    save = [str(Path(sys.prefix) / "bin" / "torchx"), "log", "--save", "-f", handle]
    moments = random.Random(17)  # noqa: S311 - not a secret
    for _ in range(8):
        before = saved_bytes(work)
        process = subprocess.Popen(
            save, cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if moments.random() < 0.6:  # else it may be killed before it has saved anything
            wait_for(lambda before=before: saved_bytes(work) > before)
        time.sleep(moments.uniform(0, 2))
        assert process.poll() is None
        process.kill()
        process.wait()
    assert saved_bytes(work)
    end.touch()
    done = torchx("log", "--save", "-f", handle)
    assert done.returncode == 0, done.stderr
    assert "the copy is complete" in done.stderr
    assert torchx("delete", handle).returncode == 0
    shown = torchx("log", handle)
    assert shown.returncode == 0, shown.stderr
    check(shown.stdout)
