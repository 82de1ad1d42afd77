"""The examples of torchx_resilience with frameworks, on ``local_cwd``."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from patience import wait_for

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "resilience"
STEPS, EVERY = 60, 20
RANKS = 2


def ranks(example: str) -> list[psutil.Process]:
    """Return the processes of the ranks of an example, which torchrun has started."""
    found = []
    for process in psutil.process_iter(["cmdline", "ppid"]):
        command = process.info["cmdline"] or []
        if str(EXAMPLES / example) in command and "torch.distributed.run" not in command:
            found.append(process)
    return found


def newest_step(folder: Path) -> int:
    """Return the newest committed step in a resume folder; -1 if there is none."""
    names = [path.name for path in folder.glob("step-*")]
    return max((int(name.removeprefix("step-")) for name in names), default=-1)


@pytest.fixture
def launch(call: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that submits an example, and returns its handle."""

    def run(example: str, *arguments: object) -> str:
        options = ["-cfg", "detach=True", "--workspace=", "--max-retries", "1", "-j", f"1x{RANKS}"]
        options += ["--resume_dir", "runs/${app_id}"]
        program = [EXAMPLES / example, "--steps", STEPS, "--every", EVERY, *arguments]
        done = call("torchx", "run", "-s", "local_cwd", *options, *program)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    return run


@pytest.fixture
def finish(call: Callable[..., Any]) -> Callable[[str], tuple[str, list[str]]]:
    """Return a function that waits for an app; it returns the weights and the attempts' reasons."""

    def end(handle: str) -> tuple[str, list[str]]:
        done = call("torchx", "wait", handle)
        log = call("torchx", "log", handle).stdout
        assert done.returncode == 0, log
        status = json.loads(call("torchx", "status", "--json", handle).stdout)
        (weights,) = {line.rpartition(" ")[2] for line in log.splitlines() if ": weights " in line}
        return weights, [attempt["reason"] for attempt in status["attempts"]]

    return end


@pytest.mark.parametrize(
    "example",
    [
        "ddp.py",
        "dcp.py",
        "accelerate_loop.py",
        "hugging_face_trainer.py",
        "lightning_trainer.py",
    ],
)
def test_disturbed_runs_have_the_weights_of_the_undisturbed_run(
    example: str,
    launch: Callable[..., str],
    finish: Callable[[str], tuple[str, list[str]]],
) -> None:
    expected, reasons = finish(launch(example))
    assert reasons == ["succeeded"]
    for number, reason in ((signal.SIGTERM, "requested"), (signal.SIGKILL, "failed")):
        handle = launch(example, "--pause", 0.1)
        folder = Path("runs") / handle.rpartition("/")[2]
        wait_for(lambda folder=folder: newest_step(folder) >= EVERY - 1)
        before = newest_step(folder)
        victim = max(ranks(example), key=lambda process: process.pid)
        os.kill(victim.pid, number)
        weights, reasons = finish(handle)
        assert reasons == [reason, "succeeded"]
        assert weights == expected
        assert newest_step(folder) >= before
