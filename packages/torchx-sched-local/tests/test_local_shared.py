"""Tests of apps that one process supervises together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, is_running, read_pids

from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.shared_guard import SharedGuard, Slot, _read_slots
from torchx_sched_local.supervise.shared_sync import SharedSync
from torchx_specs.model.status import AppState

pytestmark = pytest.mark.skipif(not process_table.IS_LINUX, reason="prctl is part of Linux")

# This program runs one app after the other in a process that adopts orphans. The last line of the
# output has the states of the apps, the number of searches through all processes, and the number of
# children that are left.
_PROGRAM = """
import json, sys
from torchx_sched_local.scheduler import create_scheduler
from torchx_sched_local.supervise.processes import process_table, replica_processes
from torchx_specs import AppDef, Role

searches = []
find_marked = replica_processes.find_marked
replica_processes.find_marked = lambda groups: searches.append(groups) or find_marked(groups)
scheduler = create_scheduler("test")
scheduler.share_supervision()
states = []
for text in sys.argv[1:]:
    app = AppDef("app", roles=[Role("main", image="", entrypoint="sh", args=["-c", text])])
    app_id = scheduler.submit(app, {})
    scheduler.wait(app_id, 60)
    states.append(scheduler.describe(app_id).state.name)
scheduler.close()
print(json.dumps([states, len(searches), len(process_table.children())]))
"""


def run(*texts: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *texts], capture_output=True, text=True, check=True
    )
    result: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_apps_without_left_processes_need_no_search() -> None:
    states, searches, _ = run("true", "exit 3", "true")
    assert states == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert searches == 0


def test_an_orphan_ends_with_its_app(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    orphan = f"(setsid sleep 5555 & echo $! >> {file}) >/dev/null 2>&1"
    states, searches, _ = run(orphan)
    assert states == ["SUCCEEDED"]
    assert searches == 0
    assert not any(map(is_running, read_pids(file)))


def test_an_orphan_without_its_environment_ends_with_its_app(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    # The orphan is found because its standard output is the log file.
    states, _, _ = run(f"(env -i setsid sleep 5555 & echo $! >> {file})")
    assert states == ["SUCCEEDED"]
    assert not any(map(is_running, read_pids(file)))


_ORPHAN_OF_A_THREAD = """
import os, signal, subprocess, threading
from torchx_sched_local.supervise.processes import adoption, process_table

assert adoption.adopt_orphans()
pids, started, done = [], threading.Event(), threading.Event()

def start():
    try:
        program = ["sh", "-c", "setsid sleep 5555 >&2 & echo $!"]
        pids.append(int(subprocess.run(program, stdout=subprocess.PIPE, check=True).stdout))
    finally:
        started.set()
    done.wait()

threading.Thread(target=start, daemon=True).start()
started.wait()
try:
    print(process_table.children() == set(pids))
finally:
    os.kill(pids[0], signal.SIGKILL)
    done.set()
"""


def test_an_orphan_is_listed_even_if_another_thread_has_started_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ORPHAN_OF_A_THREAD], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_orphans_that_have_ended_are_reaped() -> None:
    orphan = "(sleep 0.01 &) ; (sleep 0.01 &) ; sleep 0.1"
    states, _, children = run(orphan, orphan, "sleep 0.1")
    assert states == ["SUCCEEDED"] * 3
    assert children <= 1  # the guard may not have ended yet


# This program starts one app for each argument, prints its pid, the ids of the apps and the pids of
# the guards, and waits.
_RUNNING = """
import json, os, sys, time
from torchx_sched_local.scheduler import create_scheduler
from torchx_specs import AppDef, Role

scheduler = create_scheduler("test")
scheduler.share_supervision()
ids = []
for text in sys.argv[1:]:
    app = AppDef("app", roles=[Role("main", image="", entrypoint="sh", args=["-c", text])])
    ids.append(scheduler.submit(app, {}))
guards = {scheduler._apps[i].supervision.guard.process.pid for i in ids}
print(json.dumps([os.getpid(), ids, list(guards)]), flush=True)
time.sleep(1000)
"""


def test_one_guard_ends_all_apps_of_a_killed_process(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    sleep = f"echo $$ >> {file}; exec sleep 5555"
    stubborn = f"trap '' TERM; echo $$ >> {file}; while :; do sleep 1; done"
    command = [sys.executable, "-c", _RUNNING, "true", sleep, sleep, stubborn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        supervisor, ids, guards = json.loads(process.stdout.readline())
        pids = read_pids(file, 3)
        wait_for(lambda: scheduler.describe(ids[0]).state == AppState.SUCCEEDED)
        os.kill(supervisor, signal.SIGKILL)
    assert guards == [process.pid]
    wait_for(lambda: not any(map(is_running, [*pids, *guards])))
    states = [scheduler.describe(app_id).state for app_id in ids]
    assert states == [AppState.SUCCEEDED, *[AppState.CANCELLED] * 3]
    paths = [os.readlink(f"{os.environ['TORCHX_HOME']}/local/.apps/{i}") for i in ids]
    assert all(AppFolder(path).read_end() is not None for path in paths)


def test_apps_that_end_while_their_process_is_killed_have_their_exit_codes(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    file, go = tmp_path / "pids", tmp_path / "go"
    text = f"echo $$ >> {file}; while [ ! -e {go} ]; do sleep 0.01; done; exit "
    command = [sys.executable, "-c", _RUNNING, text + "0", text + "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        supervisor, ids, _ = json.loads(process.stdout.readline())
        pids = read_pids(file, 2)
        os.kill(supervisor, signal.SIGSTOP)  # the process does not notice the end of its apps
        go.touch()
        wait_for(lambda: not any(map(is_running, pids)))
        os.kill(supervisor, signal.SIGKILL)
    found = [finish(scheduler, app_id) for app_id in ids]
    assert [(app.state, app.roles_statuses[0].replicas[0].exit_code) for app in found] == [
        (AppState.SUCCEEDED, 0),
        (AppState.FAILED, 3),
    ]
    assert found[1].msg == "main/0: exit code 3"


def test_a_killed_guard_is_replaced_and_protects_the_earlier_apps(tmp_path: Path) -> None:
    started: list[int] = []
    shared = SharedGuard(started.append)
    first = shared.add(str(tmp_path / "a"), "a", 0)
    second = shared.add(str(tmp_path / "b"), "b", 0)
    assert second.process == first.process
    os.kill(first.process.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(first.process.pid))
    third = shared.add(str(tmp_path / "c"), "c", 0)
    assert started == [first.process.pid, third.process.pid]
    first.dismiss()
    first.dismiss()
    fourth = shared.add(str(tmp_path / "d"), "d", 0)
    assert isinstance(fourth, Slot)
    assert [slot[1] for slot in _read_slots(shared._file)] == ["d", "b", "c"]
    shared.dismiss()
    assert is_running(third.process.pid)  # the guard still has apps
    for slot in (second, third, fourth):
        slot.dismiss()
    shared.dismiss()
    assert not is_running(third.process.pid)


def test_an_app_with_a_long_path_has_its_own_guard(tmp_path: Path) -> None:
    shared = SharedGuard(lambda pid: None)
    guard = shared.add("/" + "x" * 5000, "app", 0)
    assert isinstance(guard, Guard)
    guard.dismiss()
    guard.wait()


def test_apps_on_one_file_system_are_synchronized_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronized: list[int] = []
    shared = SharedSync()
    monkeypatch.setattr(shared, "_syncfs", lambda fd: synchronized.append(os.fstat(fd).st_dev))
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3):
        shared.add(fd)
    os.close(fd)
    shared.run()
    shared.run()
    assert synchronized == [tmp_path.stat().st_dev]
