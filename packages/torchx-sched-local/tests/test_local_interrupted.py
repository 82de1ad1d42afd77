"""Tests of starts, ends and deletions of apps that a signal or a full disk interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from local_helpers import finish, is_running, lines, read_pids, sh, submit

from local_supervisors import supervisors
from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store import app_folder, safe_folders
from torchx_sched_local.supervise import start_supervisor
from torchx_specs import AppState
from torchx_specs.errors import BackendError

Launcher = Callable[..., "subprocess.Popen[str]"]

# This program submits a detached app with 200 replicas, each of which writes its pid to a file. It
# stops before it confirms the start, so that a test can interrupt it, and creates a file then.
SUBMIT = """
import pathlib, time
import torchx_specs as specs
from torchx_sched_local.scheduler import create_scheduler
from torchx_sched_local.supervise import start_supervisor
scheduler = create_scheduler("launcher")
script = f"echo $$ >> {sys.argv[1]}/pids; exec sleep 5555"
role = specs.Role("main", image="", entrypoint="sh", args=["-c", script], num_replicas=200)
read_report = start_supervisor._read_report
def read_and_wait(fd):
    read_report(fd)
    pathlib.Path(sys.argv[1], "started").touch()
    time.sleep(600)
start_supervisor._read_report = read_and_wait
print(scheduler.schedule(scheduler.submit_dryrun(specs.AppDef("app", [role]), {"detach": True})))
"""


def supervisor_of(home: Path) -> int | None:
    """Return the pid of the supervisor process of a detached app below ``home``, if one runs."""
    return next(iter(supervisors(str(home))), None)


@pytest.fixture
def pids_file(tmp_path: Path) -> Path:
    path = tmp_path / "pids"
    path.touch()
    return path


def is_stopped(pid: int) -> bool:
    """Return True if all threads of a process are stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def nothing_runs(pids_file: Path) -> bool:
    return not any(map(is_running, map(int, pids_file.read_text().split())))


# -- The tests below interrupt starts.


def test_sigkill_of_a_starting_supervisor_ends_the_app_and_its_replicas(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trial in range(20):
        home = tmp_path / str(trial)
        home.mkdir()
        monkeypatch.setenv("TORCHX_HOME", str(home))
        pids_file = home / "pids"
        pids_file.touch()
        process = launcher(SUBMIT, home)
        supervisor = wait_for(lambda home=home: supervisor_of(home))
        wait_for(lambda file=pids_file: file.stat().st_size)
        os.kill(supervisor, signal.SIGKILL)
        started = home / "started"
        wait_for(lambda p=process, file=started: p.poll() is not None or file.exists())
        if not started.exists():  # otherwise, the supervisor had started all replicas before
            break
    # Replicas have run, so that the caller must not take the app for one that was never started.
    assert process.returncode == 0
    wait_for(lambda: nothing_runs(pids_file))
    (app,) = create_scheduler("other").list()
    assert app.state == AppState.CANCELLED


def test_a_supervisor_that_is_killed_before_it_begins_leaves_no_folder(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: str) -> list[str]:
        return ["/bin/sh", "-c", "kill -9 $$"]

    monkeypatch.setattr(start_supervisor, "python_command", killed)
    with pytest.raises(BackendError, match="has died before it started the app"):
        submit(scheduler, sh("exec sleep 5555"), detach=True)
    assert scheduler.list() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_death_of_the_submitting_process_ends_what_was_started(
    home: Path, launcher: Launcher, pids_file: Path, tmp_path: Path, number: int
) -> None:
    process = launcher(SUBMIT, tmp_path)
    supervisor = wait_for(lambda: supervisor_of(home))
    wait_for(lambda: pids_file.stat().st_size)
    process.send_signal(number)
    process.wait(120)
    wait_for(lambda: not is_running(supervisor))
    assert nothing_runs(pids_file)
    other = create_scheduler("other")
    # SIGINT raises an exception in the submitting process, which then deletes the app's folder.
    states = [app.state for app in other.list()]
    assert states == ([] if number == signal.SIGINT else [AppState.CANCELLED])


def test_interrupt_inside_popen_ends_the_supervisor(
    scheduler: LocalScheduler, pids_file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = start_supervisor._popen

    def interrupted(*args: object) -> None:
        popen(*args)  # the caller never gets the Popen object
        raise KeyboardInterrupt

    monkeypatch.setattr(start_supervisor, "_popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit(scheduler, sh(f"echo $$ >> {pids_file}; exec sleep 5555"), detach=True)
    assert nothing_runs(pids_file)
    assert supervisor_of(home) is None
    assert scheduler.list() == []


def test_exit_code_of_a_replica_that_ends_before_the_confirmation_is_kept(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_report = start_supervisor._read_report

    def read_and_wait(fd: int) -> None:
        read_report(fd)
        time.sleep(1)  # the replica ends meanwhile

    monkeypatch.setattr(start_supervisor, "_read_report", read_and_wait)
    found = finish(scheduler, submit(scheduler, sh("sleep 0.3; exit 3"), detach=True))
    assert found.state == AppState.FAILED
    assert found.roles_statuses[0].replicas[0].exit_code == 3


def test_interrupt_inside_popen_ends_an_attached_replica(
    scheduler: LocalScheduler, pids_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = LocalScheduler.run_local_job

    def interrupted(self: LocalScheduler, **kwargs: object) -> None:
        start(self, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalScheduler, "run_local_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit(scheduler, sh(f"echo $$ >> {pids_file}; exec sleep 5555"))
    assert nothing_runs(pids_file)
    assert scheduler.list() == []


@pytest.mark.parametrize("detach", [False, True])
def test_app_whose_starter_died_before_the_first_event_is_cancelled(
    home: Path, launcher: Launcher, detach: bool
) -> None:
    code = """
import os, signal
from torchx_sched_local import submit
from torchx_sched_local.scheduler import create_scheduler
import torchx_specs as specs
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
submit.Supervision = submit.start_supervisor = die
scheduler = create_scheduler("launcher")
app = specs.AppDef("app", [specs.Role("main", image="", entrypoint="true")])
scheduler.schedule(scheduler.submit_dryrun(app, {"detach": sys.argv[1] == "True"}))
"""
    launcher(code, detach).wait(120)
    other = create_scheduler("other")
    [app] = other.list()
    assert app.state == AppState.CANCELLED
    other.wait(app.app_id)
    assert list(other.log_iter(app.app_id, "main", should_tail=True)) == []
    other.delete(app.app_id)
    assert other.list() == []


# -- The tests below interrupt the recording of an app's end.


def kill_everything(launcher: Launcher, tmp_path: Path, script: str) -> str:
    """Submit an app, kill its launcher, guard and replica at the same time; return the app's id.

    All of them are stopped before the first one is killed, so that none sees the end of another.
    """
    code = """
import os, time
from torchx_sched_local.scheduler import create_scheduler
import torchx_specs as specs
scheduler = create_scheduler("launcher")
role = specs.Role("main", image="", entrypoint="sh", args=["-c", sys.argv[1]])
app_id = scheduler.schedule(scheduler.submit_dryrun(specs.AppDef("app", [role]), {}))
supervision = scheduler._apps[app_id].supervision
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
print(app_id, supervision.guard.pid, supervision.run.replicas[0].process.pid, flush=True)
while True:
    time.sleep(1)
"""
    process = launcher(code, script, tmp_path / "up")
    assert process.stdout is not None
    app_id, *others = process.stdout.readline().split()
    pids = [process.pid, *map(int, others)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
        if number == signal.SIGSTOP:
            wait_for(lambda: all(map(is_stopped, pids)))
    process.wait(120)
    return app_id


def test_log_is_complete_after_everything_died_at_once(launcher: Launcher, tmp_path: Path) -> None:
    script = (
        f"for i in $(seq 500); do echo line $i; done; touch {tmp_path}/up;"
        " for i in $(seq 501 5000); do echo line $i; done; while :; do sleep 0.01; done"
    )
    app_id = kill_everything(launcher, tmp_path, script)
    other = create_scheduler("other")
    found = finish(other, app_id)  # a child of the replica may outlive it for a moment
    assert found.state == AppState.CANCELLED
    written = next(tmp_path.glob(f"*/local/launcher/{app_id}/main/0/stdout.log")).read_text()
    assert "".join(lines(other, app_id)) == written
    assert found.roles_statuses[0].replicas[0].state == AppState.CANCELLED


def test_error_file_means_failed_if_nothing_saw_the_end(launcher: Launcher, tmp_path: Path) -> None:
    script = (
        'echo \'{"message": "out of memory"}\' > $TORCHELASTIC_ERROR_FILE;'
        f" touch {tmp_path}/up; while :; do sleep 0.01; done"
    )
    app_id = kill_everything(launcher, tmp_path, script)
    found = finish(create_scheduler("other"), app_id)
    assert found.state == AppState.FAILED
    assert "out of memory" in found.structured_error_msg
    assert found.roles_statuses[0].replicas[0].state == AppState.FAILED


# The replicas of this app succeed at once, and leave daemons that ignore SIGTERM. The program
# waits for a long time before it kills the daemons.
SUBMIT_DAEMONS = """
import torchx_specs as specs
from torchx_sched_local.scheduler import create_scheduler
from torchx_sched_local.supervise.processes import replica_processes
replica_processes.GRACE_SECONDS = 1000.0
scheduler = create_scheduler("launcher")
script = f"trap '' TERM; sleep 5555 & echo $! >> {sys.argv[1]}/pids"
role = specs.Role("main", image="", entrypoint="sh", args=["-c", script], num_replicas=2)
print(app_id := scheduler.schedule(scheduler.submit_dryrun(specs.AppDef("app", [role]), {})))
sys.stdout.flush()
scheduler.wait(app_id)
"""


@pytest.mark.parametrize("is_guarded", [True, False])
def test_app_has_succeeded_if_it_is_killed_or_cancelled_while_its_daemons_end(
    home: Path, launcher: Launcher, tmp_path: Path, is_guarded: bool
) -> None:
    process = launcher(SUBMIT_DAEMONS, tmp_path)
    assert process.stdout is not None
    app_id = process.stdout.readline().strip()
    journal = home / "local" / "launcher" / app_id / ".torchx" / "journal"
    daemons = read_pids(tmp_path / "pids", 2)
    wait_for(lambda: journal.read_text().count('["exit",') == 2)
    other = create_scheduler("other")
    if not is_guarded:
        [guard] = psutil.Process(process.pid).children()
        guard.kill()
    process.kill()
    process.wait()
    if not is_guarded:
        assert all(map(is_running, daemons))
        other.cancel(app_id)
    wait_for(lambda: not any(map(is_running, daemons)))
    assert finish(other, app_id).state == AppState.SUCCEEDED
    assert finish(create_scheduler("third"), app_id).state == AppState.SUCCEEDED


# -- The tests below interrupt deletions.


def test_interrupted_deletion_can_be_repeated(
    scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, folder = os.unlink, home / "local" / "test"
    for steps in range(12):
        app_id = submit(scheduler, sh("exit 3"))
        finish(scheduler, app_id)
        left = [steps]

        def interrupted(*args: object, left: list[int] = left, **kwargs: object) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            unlink(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(safe_folders.os, "unlink", interrupted)
            try:
                scheduler.delete(app_id)
            except KeyboardInterrupt:
                pass
        other = create_scheduler("other")
        found = other.describe(app_id)
        assert found is None or found.state == AppState.FAILED
        other.delete(app_id)
        assert other.list() == []
        assert list(folder.iterdir()) == []


def test_two_deletions_at_once_both_succeed(scheduler: LocalScheduler) -> None:
    for _ in range(3):
        app_id = submit(scheduler, sh("sleep 5555", num_replicas=3))
        errors: list[Exception] = []

        def delete(app_id: str = app_id, errors: list[Exception] = errors) -> None:
            try:
                create_scheduler("other").delete(app_id)
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=delete) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert create_scheduler("other").list() == []


# -- The tests below, except the last one, imitate a full disk.


def full_disk(*args: object, **kwargs: object) -> None:
    raise OSError(28, "No space left on device")


def test_room_for_the_outcome_is_reserved_before_the_start(
    scheduler: LocalScheduler, home: Path
) -> None:
    app_id = submit(scheduler, sh("sleep 5555", num_replicas=20))
    room = home / "local" / "test" / app_id / ".torchx" / "room"
    assert room.stat().st_blocks * 512 >= room.stat().st_size > 20 * 600
    scheduler.cancel(app_id)
    finish(scheduler, app_id)
    assert not room.exists()


@pytest.mark.parametrize("has_success", [True, False])
def test_outcome_is_kept_on_a_disk_that_is_full_until_the_room_is_released(
    scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch, has_success: bool
) -> None:
    write_all = app_folder.write_all
    app_id = submit(scheduler, sh("exit 3"), sh("true", "other"))
    folder = home / "local" / "test" / app_id

    def full_while_reserved(fd: int, data: bytes) -> None:
        if (folder / ".torchx" / "room").exists():
            full_disk()
        write_all(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(app_folder, "write_all", full_while_reserved)
        if not has_success:
            patch.setattr(app_folder, "write_atomically", full_disk)
        assert finish(scheduler, app_id).state == AppState.FAILED
    assert (folder / "SUCCESS").exists() == has_success
    found = create_scheduler("other").describe(app_id)
    assert found.state == AppState.FAILED
    assert [r.replicas[0].exit_code for r in found.roles_statuses] == [3, 0]
    assert [app.state for app in create_scheduler("other").list()] == [AppState.FAILED]


def test_lost_outcome_is_reported(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app_id = submit(scheduler, sh("true"))
    with monkeypatch.context() as patch:
        patch.setattr(app_folder.AppFolder, "flush", full_disk)
        finish(scheduler, app_id)
    assert f"other processes cannot see that app {app_id} is SUCCEEDED" in caplog.text
    # Others see the end when the guard has ended. The exit code may have been written before.
    found = finish(create_scheduler("other"), app_id)
    assert found.state in (AppState.SUCCEEDED, AppState.CANCELLED)


def test_app_is_not_started_if_there_is_no_room_for_its_outcome(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(app_folder.os, "posix_fallocate", full_disk)
    with pytest.raises(BackendError, match="No space left on device"):
        submit(scheduler, sh("true"))
    assert list((home / "local" / "test").iterdir()) == []


def test_cancellation_on_a_full_disk_uses_the_reserved_room(
    scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    room = home / "local" / "test" / app_id / ".torchx" / "room"
    write_all = app_folder.write_all

    def full_while_reserved(fd: int, data: bytes) -> None:
        if room.exists():
            write_all(fd, data[:20])
            full_disk()
        write_all(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(app_folder, "write_all", full_while_reserved)
        create_scheduler("other").cancel(app_id)
    assert finish(scheduler, app_id).state == AppState.CANCELLED
    assert finish(create_scheduler("third"), app_id).state == AppState.CANCELLED


def test_attached_daemon_without_environment_ends_with_the_app(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    # The daemon is an orphan with its own session, so it is found only by its open log file.
    script = (
        f"(setsid env -i sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 5555' &);"
        f" until [ -s {tmp_path}/pids ]; do sleep 0.01; done"
    )
    app_id = submit(scheduler, sh(script))
    [pid] = read_pids(tmp_path / "pids")
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    assert not is_running(pid)
