"""Tests of ``dist.ddp`` that train a small model with gloo on the CPUs of this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Torchx = Callable[..., "CompletedProcess[str]"]

EPOCHS = 5
LOSS = re.compile(r"epoch (\d+)/\d+: loss (\d+\.\d+)")


@pytest.fixture
def script(repository: Path) -> Path:
    return repository / "examples" / "train_ddp.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("j", "processes"),
    [
        ("1x2", 2),
        ("2x2", 4),  # Both agents run on this machine.
    ],
)
def test_training_reduces_the_loss(torchx: Torchx, script: Path, j: str, processes: int) -> None:
    done = torchx(
        *("run", "-s", "local_cwd", "dist.ddp", "-j", j, "--rdzv_port", free_port()),
        *("--script", script, "--", "--epochs", EPOCHS),
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert f"training with {processes} processes on" in output
    losses = {int(epoch): float(loss) for epoch, loss in LOSS.findall(output)}
    assert sorted(losses) == list(range(1, EPOCHS + 1))
    assert losses[EPOCHS] < losses[1] / 2


def test_failed_training_fails_the_job(torchx: Torchx, script: Path) -> None:
    done = torchx(
        *("run", "-s", "local_cwd", "dist.ddp", "-j", "1x2", "--script", script),
        *("--", "--epochs", 2, "--batches", 5, "--lr", 0),
    )
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert "the loss did not fall" in output
