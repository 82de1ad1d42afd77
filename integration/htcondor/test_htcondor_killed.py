"""Clients that are killed or interrupted while a real HTCondor accepts their jobs."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import killed_client
import pytest
from held_command import SIGNALS, interrupted_run
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.entries import Index
from torchx_sched_htcondor.scheduler import HTCondorScheduler, create_scheduler
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse


@pytest.fixture
def scheduler(pool: Path) -> HTCondorScheduler:
    return create_scheduler("test", patience=20.0)


@pytest.fixture
def environment(
    environment: dict[str, str], running: tuple[Path, dict[str, str]]
) -> dict[str, str]:
    return {**environment, **running[1]}


def app(line: str, *names: str) -> AppDef:
    """Return an app whose roles run a line of bash."""
    resource = Resource(cpu=1, gpu=0, memMB=50)
    roles = [
        Role(name, image="", entrypoint="bash", args=["-c", line], resource=resource)
        for name in names or ("main",)
    ]
    return AppDef("app", roles)


def queued() -> str:
    """Return the names of the jobs in the queue."""
    argv = ["condor_q", "-af", "JobBatchName"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def described(scheduler: HTCondorScheduler, app_id: str) -> DescribeAppResponse:
    found = scheduler.describe(app_id)
    assert found is not None
    return found


def submit_until(monkeypatch: pytest.MonkeyPatch, command: str, count: int) -> str:
    """Submit an app of two roles whose client is killed; see :mod:`killed_client`."""
    two = app("true", "main", "other")
    return killed_client.submit_until(monkeypatch, create_scheduler, two, command, count)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_job_of_an_interrupted_condor_submit_is_removed(
    pool: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    run = ["run", "-s", "htcondor", "utils.sh", "sleep", "86400"]
    found, handle = interrupted_run(
        run, "condor_submit", "accepted", number, environment, tmp_path, torchx
    )
    assert found == code
    name = handle.rpartition("/")[2]
    wait_until(lambda: name not in queued())
    assert json.loads(torchx("status", "--json", handle).stdout)["state"] == "CANCELLED"


def test_held_jobs_of_a_killed_client_can_be_cancelled(scheduler: HTCondorScheduler) -> None:
    app_id = scheduler.submit(app("sleep 86400"), {})
    entry = Index("htcondor").get(app_id)
    assert entry is not None
    subprocess.run(["condor_hold", *entry.roles[0].jobs], capture_output=True, check=True)
    entry.complete, entry.roles[0].jobs = False, [""]  # as if the client had died after the job
    Index("htcondor").put(entry)
    assert described(scheduler, app_id).state == AppState.PENDING
    scheduler.cancel(app_id)
    wait_until(lambda: app_id not in queued())
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED


def test_submission_of_a_killed_client_is_undone_if_a_job_is_missing(
    scheduler: HTCondorScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit_until(monkeypatch, "condor_submit", 2)
    [found] = [one for one in scheduler.list() if one.app_id == app_id]
    assert found.state == AppState.CANCELLED
    wait_until(lambda: app_id not in queued())


def test_app_of_a_client_that_was_killed_before_the_first_job_is_not_listed(
    scheduler: HTCondorScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep then submits its element again."""
    app_id = submit_until(monkeypatch, "condor_submit", 1)
    assert app_id not in {one.app_id for one in scheduler.list()}
    found = described(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg.endswith(": the submission was interrupted")


def test_submission_of_a_killed_client_is_completed_if_no_job_is_missing(
    scheduler: HTCondorScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit_until(monkeypatch, "condor_release", 1)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
