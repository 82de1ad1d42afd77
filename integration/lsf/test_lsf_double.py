"""Apps on the double of LSF, beyond the conformance suite."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from lsf_jobs import app, jobs
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_sched_lsf.scheduler import LsfError, LsfScheduler, create_scheduler
from torchx_specs import AppState, macros
from torchx_specs.schedulers import Stream

pytestmark = pytest.mark.usefixtures("lsf")


def states_of(folder: Path) -> list[object]:
    return [job["stat"] for job in jobs(folder)]


def test_replicas_start_after_rank_0_and_know_its_host(scheduler: LsfScheduler) -> None:
    job = app("echo $TORCHX_RANK0_HOST $0", macros.replica_id, count=3)
    app_id = scheduler.submit(job, {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    host = os.uname().nodename
    for k in range(3):
        assert list(scheduler.log_iter(app_id, "main", k)) == [f"{host} {k}\n"]


@pytest.mark.parametrize("by", ["us", "bkill"])
def test_cancelled_app(scheduler: LsfScheduler, lsf: Path, by: str) -> None:
    app_id = scheduler.submit(app("sleep 300", count=2), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    if by == "us":
        scheduler.cancel(app_id)
    else:
        ids = [path.stem for path in lsf.glob("*.json")]
        subprocess.run(["bkill", *ids], check=True, capture_output=True)
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED


def test_refused_queue_leaves_no_jobs_and_files(scheduler: LsfScheduler, lsf: Path) -> None:
    with pytest.raises(LsfError, match="No such queue") as caught:
        scheduler.submit(app("true", count=2), {"lsf_queue": "nope"})
    assert str(caught.value).count("No such queue") == 1
    assert "\n" not in str(caught.value)
    assert states_of(lsf) == []
    assert scheduler.list() == []
    assert list(Path().iterdir()) == []


def test_jobs_are_killed_if_lsf_refuses_a_later_one(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path
) -> None:
    """The second bsub fails, so the first job is killed."""
    real = tmp_path / "bin" / "bsub"
    text = real.read_text()
    real.write_text(
        text.replace(
            "exec ",
            f'[ "$1" != -V ] && [ -e "{tmp_path}/once" ] && {{ echo full >&2; exit 255; }}\n'
            f'[ "$1" = -V ] || touch "{tmp_path}/once"\nexec ',
        )
    )
    with pytest.raises(LsfError, match="full"):
        scheduler.submit(app("sleep 300", count=2), {})
    wait_until(lambda: states_of(lsf) == ["EXIT"])


def test_jobdir_with_special_characters(scheduler: LsfScheduler, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s $HOME `x` "y"'
    app_id = scheduler.submit(app("pwd"), {"jobdir": str(folder)})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main", streams=Stream.STDOUT)) == [f"{folder}\n"]


def test_app_that_was_submitted_with_another_home(
    scheduler: LsfScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = scheduler.submit(app("sleep 300"), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "another home"))
    another = create_scheduler("another")
    found = another.describe(app_id)
    assert found is not None
    assert (found.state, [r.role for r in found.roles_statuses]) == (AppState.RUNNING, ["main"])
    assert [item.app_id for item in another.list()] == [app_id]
    another.cancel(app_id)
    wait_for(another, app_id, AppState.FAILED, AppState.CANCELLED)
