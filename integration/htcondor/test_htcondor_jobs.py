"""States of apps on a real HTCondor pool: exit codes, limits, holds, evictions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.entries import Index
from torchx_kit.batch.errors import RefusedError
from torchx_sched_htcondor.scheduler import HTCondorScheduler, create_scheduler
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse


@pytest.fixture
def scheduler(pool: Path) -> HTCondorScheduler:
    return create_scheduler("test", patience=20.0)


def app(line: str, count: int = 1) -> AppDef:
    """Return an app of one role that runs a line of bash."""
    resource = Resource(cpu=1, gpu=0, memMB=50)
    role = Role("main", image="", entrypoint="bash", args=["-c", line], resource=resource)
    role.num_replicas = count
    return AppDef("app", [role])


def condor(command: str, app_id: str) -> None:
    """Run a command of HTCondor for the job of an app."""
    entry = Index("htcondor").get(app_id)
    assert entry is not None
    subprocess.run([command, f"{entry.jobs[0]}.0"], check=True, capture_output=True)


def described(scheduler: HTCondorScheduler, app_id: str) -> DescribeAppResponse:
    found = scheduler.describe(app_id)
    assert found is not None
    return found


def test_a_program_that_exits_with_130_has_failed(scheduler: HTCondorScheduler) -> None:
    app_id = scheduler.submit(app("exit 130"), {})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED


def test_time_limit_is_the_reason_of_the_failure(scheduler: HTCondorScheduler) -> None:
    app_id = scheduler.submit(app("sleep 86400"), {"time": "2"})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert "PeriodicRemove" in found.msg


def test_a_job_that_somebody_holds_waits_with_the_reason(scheduler: HTCondorScheduler) -> None:
    app_id = scheduler.submit(app("until [ -e go ]; do sleep 0.1; done"), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    condor("condor_hold", app_id)
    wait_until(lambda: described(scheduler, app_id).state == AppState.PENDING)
    found = described(scheduler, app_id)
    assert "requeued; held; condor_release releases it" in found.msg
    Path("go").touch()
    condor("condor_release", app_id)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_an_evicted_job_never_ends_between_its_attempts(scheduler: HTCondorScheduler) -> None:
    app_id = scheduler.submit(app("until [ -e go ]; do sleep 0.1; done"), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    condor("condor_vacate_job", app_id)
    states = []

    def runs_again() -> bool:
        found = described(scheduler, app_id)
        states.append(found.state)
        return found.state == AppState.RUNNING and AppState.PENDING in states

    wait_until(runs_again)
    assert set(states) == {AppState.RUNNING, AppState.PENDING}
    Path("go").touch()
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_a_job_that_somebody_removes_is_cancelled(scheduler: HTCondorScheduler) -> None:
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    condor("condor_rm", app_id)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert "via condor_rm" in found.msg


def test_a_refused_value_is_an_error_of_the_request(scheduler: HTCondorScheduler) -> None:
    with pytest.raises(RefusedError, match="priority=x is invalid"):
        scheduler.submit(app("true"), {"extra": ["priority = x"]})
    assert scheduler.list() == []
    assert not Path(".torchx-htcondor").exists()
