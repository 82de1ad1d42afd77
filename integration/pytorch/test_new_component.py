"""Test that the component of `torchx components new --template ddp` trains without changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from subprocess import CompletedProcess

Torchx = Callable[..., "CompletedProcess[str]"]


def test_a_new_ddp_component_trains(torchx: Torchx) -> None:
    created = torchx("components", "new", "fit", "--template", "ddp")
    assert created.returncode == 0, created.stderr
    done = torchx("run", "-s", "local_cwd", "fit.py:fit", "-j", "1x2", "--", "--steps", "50")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    losses = re.findall(r"rank (\d) of 2: loss (\d+\.\d+)", output)
    assert sorted(rank for rank, _ in losses) == ["0", "1"]
    assert all(float(loss) < 1 for _, loss in losses)
