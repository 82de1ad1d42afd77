"""Tests of apps whose records are damaged while they run or after their end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_helpers import finish, is_running, lines, read_pids, sh, submit

from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store.stored_app import StoredApp
from torchx_specs import AppState

RECORDS = ["journal", "room", "supervisor.log"]
DAMAGES = ["truncated", "garbage", "empty", "removed"]

SUBMIT = """
import sys, torchx_specs as specs
from torchx_sched_local.scheduler import create_scheduler
scheduler = create_scheduler("launcher")
role = specs.Role("main", image="", entrypoint="sh", args=["-c", sys.argv[1]], num_replicas=2)
info = scheduler.submit_dryrun(specs.AppDef("app", [role]), {"detach": sys.argv[2] == "True"})
app_id = scheduler.schedule(info)
print(app_id, flush=True)
scheduler.wait(app_id)
print(scheduler.describe(app_id).state.name, flush=True)
"""

Launcher = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def other() -> LocalScheduler:
    return create_scheduler("another session")


@pytest.fixture
def running(
    launcher: Launcher, tmp_path: Path
) -> Iterator[Callable[[bool], tuple[subprocess.Popen[str], str, list[int]]]]:
    """Yield a function that starts an app.

    The function returns the launcher, the app's id, and the pids of all processes started so far.
    """
    started: list[int] = []

    def start(detach: bool) -> tuple[subprocess.Popen[str], str, list[int]]:
        pids = tmp_path / f"pids of app {len(list(tmp_path.glob('pids*')))}"
        script = f"sleep 5555 & echo $! >> '{pids}'; echo $$ >> '{pids}'; wait"
        process = launcher(SUBMIT, script, detach)
        assert process.stdout is not None
        app_id = process.stdout.readline().strip()
        started.extend(read_pids(pids, 4))
        return process, app_id, started

    yield start
    for pid in filter(is_running, started):  # processes are left only if the test failed
        os.kill(pid, signal.SIGKILL)


def damage(path: Path, kind: str) -> None:
    if kind == "removed":
        path.unlink(missing_ok=True)
        return
    whole = path.read_bytes() if path.exists() else b""
    content = {"truncated": whole[: len(whole) // 2], "garbage": b"\0" * 50, "empty": b""}
    path.write_bytes(content[kind])


# For every second kind of damage, the app is detached.
@pytest.mark.parametrize(("kind", "detach"), [*zip(DAMAGES, [False, True] * 2, strict=True)])
@pytest.mark.parametrize("names", [*([name] for name in RECORDS), RECORDS], ids=" ".join)
def test_running_app_is_shown_and_can_be_ended_after_damage_of_its_records(
    home: Path,
    other: LocalScheduler,
    running: Callable[[bool], tuple[subprocess.Popen[str], str, list[int]]],
    names: list[str],
    kind: str,
    detach: bool,
) -> None:
    launcher, app_id, pids = running(detach)
    private = home / "local" / "launcher" / app_id / ".torchx"
    for name in names:
        damage(private / name, kind)
    found = other.describe(app_id)
    assert found is not None
    assert found.state == AppState.RUNNING
    assert [len(role.replicas) for role in found.roles_statuses] == [2]
    assert [app.state for app in create_scheduler("list").list()] == [AppState.RUNNING]
    assert all(map(is_running, pids))
    other.cancel(app_id)
    assert not any(map(is_running, pids))
    assert finish(create_scheduler("third"), app_id).state == AppState.CANCELLED
    # A launcher that wrote to a removed journal cannot see that another process cancels the app.
    shown = {"CANCELLED", "FAILED"} if (kind, "journal") == ("removed", names[0]) else {"CANCELLED"}
    assert launcher.communicate(timeout=120)[0].strip() in shown
    other.delete(app_id)
    assert not private.parent.exists()
    assert other.list() == []


@pytest.mark.parametrize("kind", ["truncated", "garbage", "empty"])
@pytest.mark.parametrize(("code", "state"), [(0, AppState.SUCCEEDED), (3, AppState.FAILED)])
def test_outcome_is_known_after_damage_of_the_journal_of_a_running_app(
    home: Path, launcher: Launcher, tmp_path: Path, kind: str, code: int, state: AppState
) -> None:
    go = tmp_path / "go"
    script = f"until [ -e '{go}' ]; do sleep 0.01; done; exit {code}"
    process = launcher(SUBMIT, script, True)
    assert process.stdout is not None
    app_id = process.stdout.readline().strip()
    damage(home / "local" / "launcher" / app_id / ".torchx" / "journal", kind)
    other = create_scheduler("other")
    assert other.describe(app_id).state == AppState.RUNNING
    go.touch()
    assert finish(other, app_id).state == state


def test_app_with_damaged_records_ends_once_its_supervisor_and_processes_have_died(
    home: Path, other: LocalScheduler, launcher: Launcher
) -> None:
    process = launcher(SUBMIT, "sleep 5555", False)
    assert process.stdout is not None
    app_id = process.stdout.readline().strip()
    private = home / "local" / "launcher" / app_id / ".torchx"
    damage(private / "journal", "empty")
    process.kill()
    # The guard notices the end of the launcher, and ends the app.
    wait_for(lambda: other.describe(app_id).state == AppState.CANCELLED)
    assert finish(create_scheduler("third"), app_id).state == AppState.CANCELLED
    other.delete(app_id)
    assert not private.parent.exists()


def test_app_whose_record_is_damaged_has_the_roles_of_its_request(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("echo hello", num_replicas=2), sh("exit 3", "second"))
    scheduler.wait(app_id)
    journal = home / "local" / "test" / app_id / ".torchx" / "journal"
    journal.write_bytes(journal.read_bytes().replace(b'["app",', b'["???",'))
    found = other.describe(app_id)
    assert found is not None
    assert found.state == AppState.FAILED
    shown = [(s.role, [r.exit_code for r in s.replicas]) for s in found.roles_statuses]
    assert shown == [("main", [0, 0]), ("second", [3])]
    assert lines(other, app_id) == ["hello\n"]


def test_replica_whose_end_is_damaged_is_said_to_have_an_unknown_state(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("exit ${replica_id}", num_replicas=2))
    scheduler.wait(app_id)
    journal = home / "local" / "test" / app_id / ".torchx" / "journal"
    journal.write_bytes(journal.read_bytes().replace(b'["exit",0,1,', b'["exit",0,9,'))
    found = other.describe(app_id)
    assert found is not None
    assert found.state == AppState.FAILED
    zero, one = found.roles_statuses[0].replicas
    assert (zero.state, one.state, one.exit_code) == (AppState.SUCCEEDED, AppState.CANCELLED, None)
    assert one.reason == "its journal was damaged, so that its final state is not known"


def test_reader_of_a_truncated_journal_counts_no_restart_twice(
    home: Path, scheduler: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("exit 3", max_retries=2))
    scheduler.wait(app_id)
    journal = home / "local" / "test" / app_id / ".torchx" / "journal"
    whole = journal.read_bytes()
    events = whole.splitlines(keepends=True)
    ended = StoredApp.find(app_id)
    assert ended is not None
    assert ended.refresh().num_restarts == 2
    for kept in range(len(events) - 1, 0, -1):
        # This reader has read the whole journal, except the app's end, before the truncation.
        journal.write_bytes(b"".join(events[:-1]))
        stored = StoredApp.find(app_id)
        assert stored is not None
        stored.folder.update()
        journal.write_bytes(b"".join(events[:kept]))
        run = stored.refresh()
        left = b"".join(events[:kept])
        assert run.num_restarts == left.count(b'["retry",')
        assert run.replicas[0].restarts == left.count(b'["start",') - 1
        assert ended.refresh().num_restarts == 2


def test_waiting_process_does_not_keep_an_app_with_damaged_records_running(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler, launcher: Launcher
) -> None:
    app_id = submit(scheduler, sh("true"))
    scheduler.wait(app_id)
    private = home / "local" / "test" / app_id / ".torchx"
    damage(private / "journal", "garbage")
    with (private / "journal").open("rb"):
        other.wait(app_id, 60)
        assert other.describe(app_id).state == AppState.CANCELLED
