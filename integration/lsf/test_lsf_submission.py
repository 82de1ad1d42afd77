"""Submissions to the double of LSF that are slow, interrupted or refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lsf_jobs import app, jobs, unfinished
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_sched_lsf.job_files.records import Index
from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppState, macros

pytestmark = pytest.mark.usefixtures("lsf")

# A client that submits an app of 12 replicas; the tests run it as a process and interrupt it.
CLIENT = """\
from torchx_sched_lsf.scheduler import create_scheduler
from torchx_specs import AppDef, Role
role = Role("main", image="", entrypoint="sleep", args=["300"], num_replicas=12)
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


def test_ctrl_c_kills_the_submitted_jobs(
    client: subprocess.Popen[str], scheduler: LsfScheduler, lsf: Path
) -> None:
    """Ctrl-C in a terminal signals the client, the script and bsub."""
    os.killpg(client.pid, signal.SIGINT)
    output, _ = client.communicate(timeout=60)
    assert "was interrupted; its" in output
    wait_until(lambda: not unfinished(lsf))
    assert len(jobs(lsf)) < 12
    [found] = scheduler.list()
    assert found.state == AppState.CANCELLED
    assert found.app_id in output


@pytest.mark.parametrize("group", [False, True], ids=["client", "process-group"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_in_the_midst_of_a_submission_loses_no_job(
    client: subprocess.Popen[str],
    scheduler: LsfScheduler,
    lsf: Path,
    number: signal.Signals,
    group: bool,
) -> None:
    """The submission completes, or is undone if the script itself gets the signal."""
    (os.killpg if group else os.kill)(client.pid, number)
    client.communicate(timeout=60)
    [found] = scheduler.list()
    if group:
        wait_until(lambda: not unfinished(lsf))
        assert wait_for(scheduler, found.app_id).state == AppState.CANCELLED
    else:
        wait_until(lambda: len(unfinished(lsf)) == 12)
    scheduler.delete(found.app_id)
    wait_until(lambda: not unfinished(lsf))
    assert scheduler.list() == []


def test_submission_completes_after_the_client_was_killed(
    client: subprocess.Popen[str], scheduler: LsfScheduler, lsf: Path
) -> None:
    client.kill()
    client.communicate()
    [found] = scheduler.list()
    assert found.name == "app"
    wait_until(lambda: len(unfinished(lsf)) == 12)
    description = scheduler.describe(found.app_id)
    assert description is not None
    assert [len(role.replicas) for role in description.roles_statuses] == [12]
    scheduler.cancel(found.app_id)
    wait_until(lambda: not unfinished(lsf))


def test_cancel_finds_jobs_of_a_submission_that_was_killed_as_a_whole(
    client: subprocess.Popen[str], scheduler: LsfScheduler, lsf: Path
) -> None:
    """The last bsub is killed, too, so the id of its job is unknown, and only its name is known."""
    os.killpg(client.pid, signal.SIGKILL)
    client.communicate()
    [found] = scheduler.list()
    count = len(jobs(lsf))
    scheduler.cancel(found.app_id)
    wait_until(lambda: not unfinished(lsf))
    assert len(jobs(lsf)) == count
    assert wait_for(scheduler, found.app_id).state == AppState.CANCELLED


def test_cancel_stops_a_submission(
    client: subprocess.Popen[str], scheduler: LsfScheduler, lsf: Path
) -> None:
    [found] = scheduler.list()
    assert found.state in (AppState.PENDING, AppState.RUNNING)
    scheduler.cancel(found.app_id)
    output, _ = client.communicate(timeout=60)
    assert f"the submission of {found.app_id} was cancelled" in output
    wait_until(lambda: not unfinished(lsf))
    assert len(jobs(lsf)) < 12


def test_failed_replica_ends_those_that_are_still_being_submitted(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_SLOW", "0.5")
    failing = app('[ "$0" = 0 ] && exit 4; sleep 300', macros.replica_id, count=12)
    app_id = scheduler.submit(failing, {})
    description = wait_for(scheduler, app_id)
    assert description.state == AppState.FAILED
    assert description.msg.endswith("exit code 4")
    wait_until(lambda: not unfinished(lsf))
    assert len(jobs(lsf)) < 12
    last = description.roles_statuses[0].replicas[11]
    assert last.state == AppState.CANCELLED
    assert last.reason == "another replica failed before this job was submitted"


@pytest.mark.parametrize("old", [False, True])
def test_quiet_bsub(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    monkeypatch.setenv("BSUB_QUIET", "Y")
    if old:
        monkeypatch.setenv("LSF_DOUBLE_OLD", "1")
    app_id = scheduler.submit(app("echo $BSUB_QUIET", count=2), {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main")) == ["Y\n"]


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


def test_daemon_that_does_not_answer_is_reported(
    scheduler: LsfScheduler,
    lsf: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @contextmanager
    def warn_when_bsub_waits(seconds: float, warn: Callable[[], None]) -> Iterator[None]:
        def end_outage() -> None:
            try:
                wait_until(lambda: any(p.read_text() for p in Path().glob("*/*/bsub.err")))
                warn()
            finally:
                (lsf / "down").unlink()

        thread = threading.Thread(target=end_outage)
        thread.start()
        yield
        thread.join()

    (lsf / "down").touch()
    monkeypatch.setattr("torchx_sched_lsf.submit.if_slower", warn_when_bsub_waits)
    app_id = scheduler.submit(app("true"), {})
    assert "LSF has accepted 0 of 1 jobs within 8 s; bsub waits: Cannot connect" in caplog.text
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


@pytest.mark.gate
def test_killed_client_whose_script_has_not_started_submits_nothing(
    scheduler: LsfScheduler, lsf: Path
) -> None:
    killed = (
        "import os\nfrom torchx_sched_lsf.client import Lsf\n"
        "Lsf.run = lambda *args, **options: os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed + CLIENT], check=False)
    assert done.returncode == -signal.SIGKILL
    assert scheduler.list() == []  # so that a sweep submits its element again
    [entry] = Index().entries()
    description = scheduler.describe(entry.app_id)
    assert description is not None
    assert description.state == AppState.CANCELLED
    assert "the submission was interrupted before this job was submitted" in description.msg
    # A script that starts only now, on a slow machine, calls no bsub.
    script = Path(".torchx-lsf", entry.app_id, "torchx-bsub.sh")
    assert subprocess.run(["/bin/bash", script], check=False).returncode == 130
    assert jobs(lsf) == []
