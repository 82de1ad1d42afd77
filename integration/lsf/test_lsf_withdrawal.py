"""Tests of withdrawals on the double of LSF, and of sweeps, which withdraw waiting elements."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lsf_jobs import app, jobs
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.entries import Index
from torchx_kit.batch.errors import BatchError
from torchx_kit.jobs.records import JobRecord
from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppState
from torchx_specs.errors import RequestError


@pytest.fixture
def full(scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fill the only slot of the cluster with an app, and return the app's id."""
    monkeypatch.setenv("LSF_DOUBLE_SLOTS", "1")
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    return app_id


@pytest.fixture(autouse=True)
def _no_jobs_are_left(scheduler: LsfScheduler, lsf: Path) -> object:
    yield
    scheduler.app_arrays.cancel([found.app_id for found in scheduler.list()])


def state_of(lsf: Path, number: int = -1) -> object:
    return jobs(lsf)[number]["stat"]


def before(program: str, tmp_path: Path, line: str) -> None:
    """Make the next call of a command run a line of shell before the command itself."""
    path = tmp_path / "bin" / program
    once = tmp_path / f"{program}.once"
    text = path.read_text()
    hook = f'[ -e "{once}" ] || {{ touch "{once}"; {line}; }}\nexec '
    path.write_text(text.replace("exec ", hook, 1))


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_pending_app_is_withdrawn(
    scheduler: LsfScheduler, lsf: Path, full: str, tmp_path: Path, replicas: int
) -> None:
    waiting = scheduler.submit(app(f'touch "{tmp_path}/began"', count=replicas), {})
    assert scheduler.withdraw(waiting)
    assert scheduler.withdraw(waiting)
    assert wait_for(scheduler, waiting).state == AppState.CANCELLED
    assert [job["stat"] for job in jobs(lsf)] == ["RUN", *["EXIT"] * replicas]
    scheduler.cancel(full)
    wait_for(scheduler, full)
    assert not (tmp_path / "began").exists()


def test_an_app_that_starts_during_the_withdrawal_continues(
    scheduler: LsfScheduler, lsf: Path, full: str, tmp_path: Path
) -> None:
    waiting = scheduler.submit(app(f'until [ -e "{tmp_path}/go" ]; do sleep 0.1; done'), {})
    first, second = (job["id"] for job in jobs(lsf))
    wait_for_run = f'until grep -q RUN "{lsf}/{second}.json"; do sleep 0.1; done'
    before("bstop", tmp_path, f"bkill {first}; {wait_for_run}")
    assert not scheduler.withdraw(waiting)
    assert state_of(lsf) == "RUN"  # the withdrawal stopped the job, and resumed it
    calls = (lsf / "calls.log").read_text()
    assert f"bstop {second}\n" in calls
    assert f"bresume {second}\n" in calls
    (tmp_path / "go").touch()
    assert wait_for(scheduler, waiting).state == AppState.SUCCEEDED


def test_an_app_that_ends_during_the_withdrawal_has_started(
    scheduler: LsfScheduler, lsf: Path, full: str, tmp_path: Path
) -> None:
    waiting = scheduler.submit(app("true"), {})
    first, second = (job["id"] for job in jobs(lsf))
    wait_for_end = f'until grep -q DONE "{lsf}/{second}.json"; do sleep 0.1; done'
    before("bstop", tmp_path, f"bkill {first}; {wait_for_end}")
    assert not scheduler.withdraw(waiting)
    assert wait_for(scheduler, waiting).state == AppState.SUCCEEDED


def test_a_requeued_app_has_started(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f'echo x >> "{tmp_path}/begun"; until [ -e "{tmp_path}/go" ]; do sleep 0.1; done'
    app_id = scheduler.submit(app(line), {})
    wait_until((tmp_path / "begun").exists)
    subprocess.run(["brequeue", "-H", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    wait_until(lambda: state_of(lsf) == "PSUSP")
    assert not scheduler.withdraw(app_id)
    assert state_of(lsf) == "PSUSP"  # the user's hold stays


def test_a_killed_withdrawal_is_completed_by_the_next_one(
    scheduler: LsfScheduler, lsf: Path, full: str, tmp_path: Path
) -> None:
    waiting = scheduler.submit(app("true"), {})
    path = tmp_path / "bin" / "bkill"
    text = path.read_text()
    path.write_text("#!/bin/sh\necho broken >&2\nexit 255\n")
    with pytest.raises(BatchError, match="broken"):
        scheduler.withdraw(waiting)
    assert state_of(lsf) == "PSUSP"
    path.write_text(text)
    assert scheduler.withdraw(waiting)
    assert state_of(lsf) == "EXIT"


def test_a_job_that_a_killed_withdrawal_left_suspended_is_resumed(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path
) -> None:
    app_id = scheduler.submit(app(f'until [ -e "{tmp_path}/go" ]; do sleep 0.1; done'), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    entry = Index("lsf").get(app_id)
    assert entry is not None
    JobRecord(scheduler._host, entry.record).begin_withdrawal()
    subprocess.run(["bstop", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    assert not scheduler.withdraw(app_id)
    assert state_of(lsf) == "RUN"
    subprocess.run(["bstop", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    assert not scheduler.withdraw(app_id)
    assert state_of(lsf) == "USUSP"  # the user's stop stays
    subprocess.run(["bresume", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    (tmp_path / "go").touch()
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_an_element_of_an_array_is_withdrawn_alone(
    scheduler: LsfScheduler, lsf: Path, full: str
) -> None:
    infos = [scheduler.submit_dryrun(app(f"echo {n}"), {}) for n in range(3)]
    ids = list(scheduler.app_arrays.submit(infos))
    assert scheduler.withdraw(ids[1])
    assert [job["stat"] for job in jobs(lsf)[1:]] == ["PEND", "EXIT", "PEND"]
    with pytest.raises(RequestError, match="is an array"):
        scheduler.withdraw(ids[0].rpartition(".")[0])
    with pytest.raises(RequestError, match="not in this user's index"):
        scheduler.withdraw("app-x1")
