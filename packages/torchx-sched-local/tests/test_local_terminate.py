"""Tests of how processes end: by cancel, by kill, with their app, and with the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from local_helpers import finish, is_running, lines, read_pids, sh, submit

from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes import replica_processes
from torchx_sched_local.supervise.processes.replica_processes import ProcessId
from torchx_sched_local.supervise.reactor import Reactor
from torchx_specs import AppState

# This script consists of a leader that starts three long processes: a child, a daemon in its own
# session whose parent has ended, and a daemon without environment variables whose parent is the
# leader.
FAMILY = """
echo $$ >> {pids}
sleep 5555 & echo $! >> {pids}
sh -c 'setsid sh -c "echo \\$\\$ >> {pids}; exec sleep 5555" & sleep 0.05' &
setsid env -i sh -c 'echo $$ >> {pids}; exec sleep 5555' &
wait
"""


def all_ended(pids: list[int]) -> bool:
    return not any(map(is_running, pids))


def test_cancel_ends_every_descendant(scheduler: LocalScheduler, tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    app_id = submit(scheduler, sh(FAMILY.format(pids=pids_file)))
    pids = read_pids(pids_file, 4)
    assert all(map(is_running, pids))
    time.sleep(0.1)  # the parent of the first daemon ends meanwhile
    scheduler.cancel(app_id)
    assert all_ended(pids)
    found = scheduler.describe(app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg == "cancelled"
    assert found.roles_statuses[0].replicas[0].state == AppState.CANCELLED
    assert found.roles_statuses[0].replicas[0].reason == "cancelled"


class StoppedReactor:
    """Pauses a reactor between two events, until ``go_on`` is called."""

    def __init__(self, reactor: Reactor) -> None:
        self._is_stopped, self._go = threading.Event(), threading.Event()
        reactor.call_soon(self._stop)
        self._is_stopped.wait(60)

    def _stop(self) -> None:
        self._is_stopped.set()
        self._go.wait(60)

    def go_on(self) -> None:
        self._go.set()


@pytest.mark.parametrize(("code", "state"), [(0, AppState.SUCCEEDED), (3, AppState.CANCELLED)])
def test_app_whose_replicas_ended_with_0_before_the_cancellation_has_succeeded(
    scheduler: LocalScheduler, home: Path, tmp_path: Path, code: int, state: AppState
) -> None:
    go = tmp_path / "go"
    script = f"until [ -e '{go}' ]; do sleep 0.01; done; exit {code}"
    app_id = submit(scheduler, sh(script, num_replicas=3))
    local_app = scheduler._apps[app_id]
    stopped = StoppedReactor(local_app.supervision.reactor)
    go.touch()
    pids = [replica.process.pid for replica in local_app.supervision.run.replicas]
    wait_for(lambda: not any(map(is_running, pids)))
    local_app.supervision.cancel_soon()
    stopped.go_on()
    assert finish(scheduler, app_id).state == state
    scheduler.wait(app_id)
    assert create_scheduler("other").describe(app_id).state == state
    assert {path.name for path in (home / "local" / "test" / app_id / ".torchx").iterdir()} == {
        "journal"
    }


def test_app_that_ends_with_0_because_another_process_cancels_it_is_cancelled(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    script = f"trap 'exit 0' TERM; touch '{up}'; while :; do sleep 0.01; done"
    app_id = submit(scheduler, sh(script))
    wait_for(up.exists)
    create_scheduler("other").cancel(app_id)
    assert finish(scheduler, app_id).state == AppState.CANCELLED


def test_cancel_gives_processes_time_to_end(scheduler: LocalScheduler, tmp_path: Path) -> None:
    script = (
        f"trap 'echo saved; sleep 0.2; touch {tmp_path}/saved; exit 0' TERM;"
        f" touch {tmp_path}/up; while :; do sleep 0.01; done"
    )
    app_id = submit(scheduler, sh(script))
    wait_for((tmp_path / "up").exists)
    scheduler.cancel(app_id)
    assert (tmp_path / "saved").exists()
    assert lines(scheduler, app_id, regex="saved") == ["saved\n"]
    assert scheduler.describe(app_id).state == AppState.CANCELLED


def test_processes_that_ignore_sigterm_are_killed(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_processes, "GRACE_SECONDS", 0.3)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.01; done"
    app_id = submit(scheduler, sh(script))
    [pid] = read_pids(tmp_path / "pid")
    scheduler.cancel(app_id)
    assert all_ended([pid])
    assert scheduler.describe(app_id).roles_statuses[0].replicas[0].exit_code == -9


@pytest.mark.parametrize("by_another", [False, True])
def test_kill_gives_processes_no_time_to_end(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_another: bool
) -> None:
    monkeypatch.setattr(replica_processes, "GRACE_SECONDS", 3600.0)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.01; done"
    app_id = submit(scheduler, sh(script))
    [pid] = read_pids(tmp_path / "pid")
    killer = create_scheduler("other") if by_another else scheduler
    killer.kill(app_id)
    assert all_ended([pid])
    found = scheduler.describe(app_id)
    assert found.state == AppState.CANCELLED
    assert found.roles_statuses[0].replicas[0].exit_code == -9
    killer.kill(app_id)
    killer.kill("no_such_app")


def test_cancel_ends_stopped_processes(scheduler: LocalScheduler, tmp_path: Path) -> None:
    app_id = submit(scheduler, sh(f"echo $$ > {tmp_path}/pid; exec sleep 5555"))
    [pid] = read_pids(tmp_path / "pid")
    os.kill(pid, signal.SIGSTOP)
    scheduler.cancel(app_id)
    assert all_ended([pid])


def test_processes_left_by_a_successful_app_are_ended(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    pids_file = tmp_path / "pids"
    script = (
        f"sleep 5555 & echo $! >> {pids_file}; "
        f"setsid sh -c 'echo $$ >> {pids_file}; echo late; exec sleep 5555' & "
        f"until [ $(wc -l < {pids_file}) = 2 ]; do sleep 0.01; done"
    )
    app_id = submit(scheduler, sh(script))
    found = finish(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert all_ended(read_pids(pids_file, 2))
    assert lines(scheduler, app_id) == ["late\n"]


def test_background_process_lives_as_long_as_the_app(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    starter = sh(f"sleep 5555 & echo $! > {tmp_path}/pid", "starter")
    user = sh(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done", "user")
    app_id = submit(scheduler, starter, user)
    [pid] = read_pids(tmp_path / "pid")
    wait_for(lambda: scheduler.describe(app_id).roles_statuses[0].replicas[0].exit_code == 0)
    assert is_running(pid)
    (tmp_path / "go").touch()
    finish(scheduler, app_id)
    assert all_ended([pid])


LAUNCHER = """
import os, sys, time
os.environ["TORCHX_HOME"] = sys.argv[1]
from torchx_specs import AppDef, Role
from torchx_sched_local.scheduler import create_scheduler
scheduler = create_scheduler("launcher")
role = Role("main", image="", entrypoint="sh", args=["-c", sys.argv[2]], num_replicas=2)
print(scheduler.schedule(scheduler.submit_dryrun(AppDef("app", [role]), {})), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_their_launcher(
    launcher: Callable[..., subprocess.Popen[str]],
    home: Path,
    tmp_path: Path,
    number: int,
) -> None:
    pids_file = tmp_path / "pids"
    process = launcher(
        LAUNCHER + "time.sleep(1000)", home, "echo out; " + FAMILY.format(pids=pids_file)
    )
    app_id = process.stdout.readline().strip()
    # Wait until all processes have started, so that the test can check that each of them ends.
    pids = read_pids(pids_file, 8)
    time.sleep(0.1)
    os.kill(process.pid, number)
    wait_for(lambda: all_ended(pids))
    scheduler = create_scheduler("other")
    found = finish(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg == f"ended with the program that started it (process {process.pid})"
    assert lines(scheduler, app_id) == ["out\n"]
    assert (
        '"final_state": "CANCELLED"'
        in (home / "local" / "launcher" / app_id / "SUCCESS").read_text()
    )


def test_processes_end_when_the_launcher_exits(
    launcher: Callable[..., subprocess.Popen[str]], home: Path, tmp_path: Path
) -> None:
    process = launcher(LAUNCHER, home, f"echo $$ >> {tmp_path}/pids; exec sleep 5555")
    app_id = process.stdout.readline().strip()
    assert process.wait(120) == 0
    pids = read_pids(tmp_path / "pids", 0) if (tmp_path / "pids").exists() else []
    assert all_ended(pids)
    assert finish(create_scheduler("other"), app_id).state == AppState.CANCELLED


def test_processes_end_when_the_launcher_becomes_another_program(
    launcher: Callable[..., subprocess.Popen[str]], home: Path, tmp_path: Path
) -> None:
    code = LAUNCHER + "os.execvp('sleep', ['sleep', '5555'])"
    process = launcher(code, home, f"echo $$ >> {tmp_path}/pids; exec sleep 5555")
    app_id = process.stdout.readline().strip()
    wait_for(lambda: all_ended(read_pids(tmp_path / "pids", 2)))
    assert finish(create_scheduler("other"), app_id).state == AppState.CANCELLED
    assert process.poll() is None


def test_forked_process_neither_ends_nor_keeps_the_apps_of_its_parent(
    launcher: Callable[..., subprocess.Popen[str]], home: Path, tmp_path: Path
) -> None:
    code = LAUNCHER + (
        "pid = os.fork()\n"
        "if not pid:\n"
        "    scheduler.close()\n"
        "    print('closed', flush=True)\n"
        "    os.close(1)\n"
        "    time.sleep(1000)\n"
        "time.sleep(1000)\n"
    )
    process = launcher(code, home, f"echo $$ >> {tmp_path}/pids; exec sleep 5555")
    app_id = process.stdout.readline().strip()
    pids = read_pids(tmp_path / "pids", 2)
    assert process.stdout.readline() == "closed\n"
    time.sleep(0.2)
    assert all(map(is_running, pids))
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: all_ended(pids))
    assert finish(create_scheduler("other"), app_id).state == AppState.CANCELLED


def test_forked_process_can_describe_and_submit_apps(
    launcher: Callable[..., subprocess.Popen[str]], home: Path, tmp_path: Path
) -> None:
    code = (
        LAUNCHER
        + """
app_id = next(iter(scheduler._apps))
child = os.fork()
if not child:
    print("seen", scheduler.describe(app_id).state.name, flush=True)
    scheduler.wait(app_id, 0.01)
    own = scheduler.schedule(scheduler.submit_dryrun(AppDef("own", [role]), {}))
    scheduler.cancel(own)
    print("own", scheduler.describe(own).state.name, flush=True)
    scheduler.wait(app_id)
    print("seen", scheduler.describe(app_id).state.name, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    process = launcher(code, home, script)
    process.stdout.readline()
    assert process.stdout.readline() == "seen RUNNING\n"
    assert process.stdout.readline() == "own CANCELLED\n"
    (tmp_path / "go").touch()
    assert process.stdout.readline() == "seen SUCCEEDED\n"
    assert process.wait(120) == 0


def test_app_ends_with_the_app_that_submitted_it(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    import sys

    inner = tmp_path / "inner.py"
    inner.write_text(f"import sys; sys.path[:] = {sys.path!r}\n" + LAUNCHER + "time.sleep(1000)")
    script = f"exec {sys.executable} {inner} '{home}' 'echo $$ >> {tmp_path}/pids; exec sleep 5555'"
    app_id = submit(scheduler, sh(script))
    pids = read_pids(tmp_path / "pids", 2)
    scheduler.cancel(app_id)
    wait_for(lambda: all_ended(pids))
    [inner_app] = [app for app in scheduler.list() if app.app_id != app_id]
    # The replica of the inner app may receive its signal before the supervisor of that app does.
    assert finish(scheduler, inner_app.app_id).state in (AppState.CANCELLED, AppState.FAILED)


def test_guard_ignores_signals_and_ends_with_the_app(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    guard = scheduler._apps[app_id].supervision.guard.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, number)
    time.sleep(0.05)
    assert is_running(guard)
    scheduler.cancel(app_id)
    wait_for(lambda: not is_running(guard))


def test_guard_ignores_signals_from_its_start(tmp_path: Path) -> None:
    (tmp_path / ".torchx").mkdir()
    folder = AppFolder(str(tmp_path))
    folder.open_journal()
    for _ in range(20):
        guard = Guard(folder, "app", 0)
        os.kill(guard.pid, signal.SIGTERM)
        guard.dismiss()
        guard.wait()
        assert guard._process.returncode == 0


def test_app_succeeds_although_its_guard_was_killed(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("sleep 0.2"))
    os.kill(scheduler._apps[app_id].supervision.guard.pid, signal.SIGKILL)
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED


def test_the_thread_of_a_replaced_termination_finds_no_process(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(scheduler, sh("sleep 100"))
    supervision = scheduler._apps[app_id].supervision
    finds: list[Callable[[], set[ProcessId]]] = []
    with monkeypatch.context() as patched:
        held = threading.Event()

        def terminate_all(find: Callable[[], set[ProcessId]]) -> None:
            finds.append(find)
            held.wait()

        patched.setattr(replica_processes, "terminate_all", terminate_all)
        for number in range(2):
            operation = partial(
                supervision._terminate, {*supervision.run.replicas}, "", lambda: None
            )
            supervision.reactor.call_soon(operation)
            wait_for(lambda n=number: len(finds) > n)
        replaced, current = (find() for find in finds)
        held.set()
    assert replaced == set()
    assert supervision.run.replicas[0].process in current
    scheduler.cancel(app_id)
    assert finish(scheduler, app_id).state == AppState.CANCELLED
