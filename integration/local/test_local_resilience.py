"""Disturbed runs with torchx_resilience end as the undisturbed run does, on ``local_cwd``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import resilient_loop

from patience import wait_for
from torchx_kit.jobs.attempts import EXIT_REQUEUE
from torchx_resilience import contract
from torchx_runner import Runner, get_runner
from torchx_specs import AppDef, AppState, AppStatus, Role, settings

WORLD = 2


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    with get_runner() as runner:
        yield runner


def run(runner: Runner, folder: Path, fault: str, retries: int = 0, **cfg: Any) -> AppStatus:
    """Run the loop with a fault in its first attempt, and return its final status."""
    role = Role(
        *("rank", ""),
        entrypoint=sys.executable,
        args=[resilient_loop.__file__, str(folder), fault],
        num_replicas=WORLD,
        max_retries=retries,
    )
    cfg = {"resume_dir": str(folder / "resume"), **cfg}
    handle = runner.run(AppDef("loop", [role]), "local_cwd", cfg)
    if fault == "outside":
        pids = [folder / f"pid-{rank}" for rank in range(WORLD)]
        wait_for(lambda: all(path.exists() for path in pids))
        os.kill(int(pids[1].read_text()), signal.SIGTERM)
        (folder / "go").touch()
    status = runner.wait(handle, 0.1)
    assert status is not None
    return status


@pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("none", None),
        ("request", "requested"),
        ("failure", "failed"),
        ("kill", "failed"),
        # the rank commits a checkpoint after SIGTERM, and ends with exit code 75
        ("outside", "requested"),
    ],
)
def test_weights_are_those_of_the_undisturbed_run(
    runner: Runner, tmp_path: Path, fault: str, reason: str | None, detach: bool
) -> None:
    status = run(runner, tmp_path, fault, retries=1, detach=detach)
    assert status.state == AppState.SUCCEEDED
    seen = resilient_loop.check(tmp_path, WORLD)
    assert seen == ["none", *([reason] if reason else [])]
    assert [attempt.reason for attempt in status.attempts] == [
        *([reason] if reason else []),
        "succeeded",
    ]
    assert status.attempts[-1].committed_step == resilient_loop.END - 1


def test_time_limit_of_an_attempt_loses_no_step(runner: Runner, tmp_path: Path) -> None:
    status = run(runner, tmp_path, "limit", time="3s")
    assert status.state == AppState.SUCCEEDED
    assert resilient_loop.check(tmp_path, WORLD)[:2] == ["none", "time-limit"]


def test_names_of_the_contract_are_the_same_on_both_sides() -> None:
    for name in ("ATTEMPT", "RESTART_REASON", "RESUME_DIR", "STOP_GRACE", "JOB_ID"):
        assert getattr(contract, f"ENV_{name}") == getattr(settings, f"ENV_TORCHX_{name}")
    assert contract.EXIT_REQUEUE == EXIT_REQUEUE
