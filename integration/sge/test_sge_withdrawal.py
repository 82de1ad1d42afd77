"""Tests of withdrawals from a real Grid Engine, and of sweeps, which withdraw waiting elements."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sge_jobs import app, role
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.entries import Index
from torchx_kit.batch.errors import BatchError
from torchx_sched_sge.scheduler import SgeScheduler
from torchx_sched_sge.system import Sge
from torchx_specs import AppState
from torchx_specs.errors import RequestError

HOSTS = 3


def run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def job_of(app_id: str) -> str:
    entry = Index("sge").get(app_id)
    assert entry is not None
    return entry.roles[0].jobs[0]


def states(app_id: str) -> list[str]:
    """Return the states of the tasks of an app's first job."""
    output = run("qstat", "-xml", "-g", "d")
    rows = re.findall(r"<JB_job_number>(\d+)<.*?<state>(\w+)<", output, re.S)
    return [state for job, state in rows if job == job_of(app_id)]


@pytest.fixture
def full(scheduler: SgeScheduler) -> str:
    """Fill the cluster's hosts with an app, and return the app's id."""
    app_id = scheduler.submit(app(role("sleep 86400", count=HOSTS, cpu=16)), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    wait_until(lambda: states(app_id) == ["r"] * HOSTS)
    return app_id


def before_hold(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run an action when a withdrawal has queried the tasks, just before it holds the job."""
    original = Sge.hold

    def hold(sge: Sge, job_ids: Sequence[str]) -> None:
        action()
        original(sge, job_ids)

    monkeypatch.setattr(Sge, "hold", hold)


@pytest.mark.parametrize("count", [1, 3])
def test_a_waiting_app_is_withdrawn(
    scheduler: SgeScheduler, full: str, tmp_path: Path, count: int
) -> None:
    waiting = scheduler.submit(app(role(f"touch {tmp_path}/began", count=count)), {})
    assert scheduler.withdraw(waiting)
    assert scheduler.withdraw(waiting)
    assert wait_for(scheduler, waiting).state == AppState.CANCELLED
    assert states(waiting) == []
    assert not scheduler.withdraw(full)
    assert states(full) == ["r"] * HOSTS
    scheduler.cancel(full)
    wait_for(scheduler, full)
    assert not (tmp_path / "began").exists()
    assert not scheduler.withdraw(full)
    with pytest.raises(RequestError, match="not in this user's index"):
        scheduler.withdraw("app-x1")


@pytest.mark.parametrize("count", [1, 2])
def test_an_app_that_starts_during_the_withdrawal_continues(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    line = "until [ -e go ]; do sleep 0.1; done"
    # A replica has 16 slots, a whole host. One host is free, so only one of two replicas starts.
    filling = scheduler.submit(app(role("sleep 86400", count=HOSTS - 1, cpu=16)), {})
    wait_until(lambda: states(filling) == ["r"] * (HOSTS - 1))
    waiting = scheduler.submit(
        app(role(line, count=count, cpu=16)), {"extra": ["-a", "203501010000"]}
    )

    def start() -> None:
        run("qalter", "-a", "202001010000", job_of(waiting))
        wait_until(lambda: "r" in states(waiting))

    before_hold(monkeypatch, start)
    assert not scheduler.withdraw(waiting)
    assert not any("h" in state for state in states(waiting))
    Path("go").touch()
    scheduler.cancel(filling)
    assert wait_for(scheduler, waiting).state == AppState.SUCCEEDED


def test_an_app_that_grid_engine_has_rescheduled_has_started(scheduler: SgeScheduler) -> None:
    app_id = scheduler.submit(app(role("sleep 86400")), {"extra": ["-r", "y"]})
    wait_for(scheduler, app_id, AppState.RUNNING)
    wait_until(lambda: list(Path(".torchx-sge", app_id).glob("replica-*")))
    run("qhold", job_of(app_id))  # when the job is rescheduled, it waits
    run("qmod", "-rj", job_of(app_id))
    wait_until(lambda: any("q" in state for state in states(app_id)))
    [state] = states(app_id)
    assert not scheduler.withdraw(app_id)
    assert states(app_id) == [state]  # the user's hold stays


def test_a_killed_withdrawal_is_completed_by_the_next_one(
    scheduler: SgeScheduler, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(sge: Sge, job_ids: Sequence[str]) -> None:
        raise BatchError("killed")

    waiting = scheduler.submit(app(role("true")), {})
    with monkeypatch.context() as patched:
        patched.setattr(Sge, "cancel", fail)
        with pytest.raises(BatchError, match="killed"):
            scheduler.withdraw(waiting)
    assert states(waiting) == ["hqw"]
    assert scheduler.withdraw(waiting)
    assert states(waiting) == []
