"""Submissions to the double of LSF that are slow, interrupted or refused; versions of LSF."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lsf_jobs import app, jobs, unfinished
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.errors import LimitError, UnreachableError
from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppState, macros

pytestmark = pytest.mark.usefixtures("lsf")

# A client that submits an app of 12 replicas; the tests run it as a process and interrupt it.
CLIENT = """\
from torchx_sched_lsf.scheduler import create_scheduler
from torchx_specs import AppDef, Role
role = Role("main", image="", entrypoint="touch", args=["started"], num_replicas=12)
create_scheduler("client").submit(AppDef("app", [role]), {})
"""


@pytest.fixture
def client(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> subprocess.Popen[str]:
    """Return the process of a client whose submission is in progress."""
    monkeypatch.setenv("LSF_DOUBLE_SLOW", "0.3")
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: len(jobs(lsf)) >= 3)
    return process


def test_jobs_start_after_the_last_one_is_accepted(
    client: subprocess.Popen[str], scheduler: LsfScheduler, lsf: Path
) -> None:
    assert {job["stat"] for job in jobs(lsf)} == {"PSUSP"}
    [found] = scheduler.list()
    assert (found.state, found.name) == (AppState.PENDING, "app")
    client.communicate()
    assert wait_for(scheduler, found.app_id).state == AppState.SUCCEEDED
    assert Path("started").exists()


@pytest.mark.parametrize("group", [False, True], ids=["client", "process-group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_job_of_an_interrupted_submission_starts(
    client: subprocess.Popen[str],
    scheduler: LsfScheduler,
    lsf: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    group: bool,
) -> None:
    monkeypatch.setattr("torchx_kit.batch.entries.GRACE_SECONDS", 0)
    (os.killpg if group else os.kill)(client.pid, number)
    client.communicate()
    # A bsub that outlives its client may still add a held job.
    wait_until(lambda: subprocess.run(["pgrep", "-f", str(lsf.parent)], check=False).returncode)
    [found] = scheduler.list()
    assert found.state == AppState.CANCELLED
    scheduler.cancel(found.app_id)
    wait_until(lambda: not unfinished(lsf))
    assert len(jobs(lsf)) < 12
    assert not Path("started").exists()
    scheduler.delete(found.app_id)
    assert scheduler.list() == []


def test_a_failed_replica_ends_those_that_wait(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_SLOTS", "1")
    app_id = scheduler.submit(app('[ "$0" = 0 ] && exit 4', macros.replica_id, count=4), {})
    description = wait_for(scheduler, app_id)
    assert description.state == AppState.FAILED
    assert description.msg.endswith("exit code 4")
    wait_until(lambda: not unfinished(lsf))
    assert not any(job["started"] for job in jobs(lsf)[1:])
    last = description.roles_statuses[0].replicas[3]
    assert last.state == AppState.CANCELLED
    assert last.reason == "another replica failed before this one started"


@pytest.mark.parametrize("old", [False, True])
def test_variables_of_bsub_have_no_effect(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    for name in ("BSUB_QUIET", "BSUB_STDERR", "BSUB_CHK_RESREQ"):
        monkeypatch.setenv(name, "Y")
    monkeypatch.setenv("LSB_DEFAULTQUEUE", "nope")
    monkeypatch.setenv("LSB_DEFAULTPROJECT", "mine")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    if old:
        monkeypatch.setenv("LSF_DOUBLE_OLD", "1")
    cfg = {"lsf_queue": "normal"}
    app_id = scheduler.submit(app("echo $LC_ALL ${BSUB_QUIET-none}", count=2), cfg)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main")) == ["C.UTF-8 none\n"]
    assert {job["project"] for job in jobs(lsf)} == {"mine"}  # the user gave no other


def test_jobs_that_the_user_holds_stay_held(scheduler: LsfScheduler, lsf: Path) -> None:
    app_id = scheduler.submit(app("true", count=2), {"extra": ["-H"]})
    assert {job["stat"] for job in jobs(lsf)} == {"PSUSP"}
    found = scheduler.describe(app_id)
    assert found is not None
    assert "held; bresume releases it" in found.msg
    subprocess.run(["bresume", *(str(job["id"]) for job in jobs(lsf))], check=True)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_a_limit_of_pending_jobs_is_an_error(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, bsub would wait as long as too many jobs are pending."""
    monkeypatch.setenv("LSF_DOUBLE_MAX_PEND", "1")
    scheduler.system.patience = 0.0
    with pytest.raises(LimitError, match="Pending job threshold reached"):
        scheduler.submit(app("true", count=2), {})
    wait_until(lambda: not unfinished(lsf))
    assert scheduler.list() == []


def test_a_daemon_that_does_not_answer_is_reported(scheduler: LsfScheduler, lsf: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler.system, "timeout", 2.0)
        patch.setattr(scheduler.system, "patience", 0.0)
        (lsf / "down").touch()
        with pytest.raises(UnreachableError, match="Cannot connect to LSF"):
            scheduler.submit(app("true"), {})
    (lsf / "down").unlink()
    [found] = scheduler.list()
    assert found.state == AppState.CANCELLED
    assert jobs(lsf) == []


def test_jobs_have_the_users_umask(scheduler: LsfScheduler) -> None:
    before = os.umask(0o027)
    try:
        app_id = scheduler.submit(app("umask; touch made"), {})
    finally:
        os.umask(before)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main")) == ["0027\n"]
    assert Path("made").stat().st_mode & 0o777 == 0o640
    assert Path(".torchx-lsf", app_id).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("version", "unit", "reserved", "gpu"),
    [
        ("10.1.0.14", "", 100, "num=2/host:"),
        ("10.1.0.14", "GB", 100, "num=2/host:"),
        ("10.1.0.8", "GB", 100, "num=2:"),
        ("10.1.0.1", "GB", 1024, "num=2:"),
        ("9.1.3.0", "KB", 100, ""),
        ("9.1.3.0", "", 100, ""),
        ("compatible", "", 100, ""),
    ],
)
def test_memory_has_the_unit_of_the_version(
    scheduler: LsfScheduler,
    lsf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    unit: str,
    reserved: int,
    gpu: str,
) -> None:
    """An old version takes whole numbers of its own unit, so 100 MB become 1 GB (1024 MB)."""
    monkeypatch.setenv("LSF_DOUBLE_VERSION", version)
    monkeypatch.setenv("LSF_ENVDIR", str(tmp_path))
    (tmp_path / "lsf.conf").write_text(f"LSF_UNIT_FOR_LIMITS={unit}\n" if unit else "")
    app_id = scheduler.submit(app("true", memory=100, gpus=2 if gpu else 0), {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    [job] = jobs(lsf)
    assert job["reserved"] == reserved
    assert gpu in (lsf / "calls.log").read_text()
