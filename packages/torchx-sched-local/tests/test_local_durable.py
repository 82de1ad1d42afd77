"""Tests of apps that outlive the process that started them, of damaged files, and of pruning."""

from __future__ import annotations

import binascii
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, is_running, lines, python, read_pids, run, sh, submit

from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store import records
from torchx_sched_local.store.app_folder import AppFolder, rebuilt_app
from torchx_sched_local.store.app_run import DAMAGED, AppRun
from torchx_sched_local.store.pruning import unused_apps
from torchx_sched_local.store.stored_app import StoredApp
from torchx_specs import AppDef, AppState, Role, macros
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.status import is_terminal
from torchx_specs.workspace.pruning import PruneQuery


@pytest.fixture
def other() -> LocalScheduler:
    return create_scheduler("another session")


def test_another_scheduler_describes_the_app_identically(
    scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    role = sh("echo ${app_id}; exit ${replica_id}", num_replicas=2, env={"A": macros.app_id})
    info = scheduler.submit_dryrun(AppDef("app", [role], {"team": "x"}), {})
    app_id = scheduler.schedule(info)
    mine = finish(scheduler, app_id)
    theirs = other.describe(app_id)
    assert theirs == mine
    assert theirs.roles == [role]
    assert theirs.metadata == {"team": "x"}
    assert lines(other, app_id) == [f"{app_id}\n"]
    native = other.describe_native(app_id)
    assert native.request == info.request
    assert native.app.roles == [role]


def test_times_and_exit_codes_are_known_to_every_process(
    scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    failed = submit(scheduler, sh("exit 3"))
    scheduler.wait(failed)
    running = submit(scheduler, sh("sleep 60"))
    for found in (scheduler.describe(failed), other.describe(failed)):
        assert before <= found.submitted <= found.started <= found.ended
    listed = {app.app_id: app for app in other.list()}
    assert listed[failed].exit_code == 3
    assert before <= listed[failed].started <= listed[failed].ended
    assert (listed[running].ended, listed[running].exit_code) == (None, None)
    assert other.describe(running).ended is None
    scheduler.delete(running)
    scheduler.delete(failed)


def test_a_replica_starts_before_its_program_runs(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, start = tmp_path / "time", LocalScheduler.run_local_job

    def slow(self: LocalScheduler, **kwargs: Any) -> Any:
        process = start(self, **kwargs)
        wait_for(lambda: file.exists() and file.read_text().endswith("\n"))
        return process

    monkeypatch.setattr(LocalScheduler, "run_local_job", slow)
    app_id = submit(scheduler, sh(f"date +%s.%N > {file}"))
    scheduler.wait(app_id)
    found = scheduler.describe(app_id)
    assert found.started.timestamp() <= float(file.read_text())


def test_is_final_notices_the_end_between_frequent_calls(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    wait = 'while [ ! -e "$GO" ]; do sleep 0.01; done'
    role = sh("[ ${replica_id} = 1 ] || " + wait, num_replicas=2, env={"GO": str(tmp_path / "go")})
    app_id = submit(scheduler, role)
    stored = StoredApp.find(app_id)
    assert stored is not None
    wait_for(lambda: stored.is_final("main", 1))
    assert not stored.is_final("main", 0)
    (tmp_path / "go").touch()
    while not is_terminal(scheduler.describe(app_id).state):
        stored.is_final("main", 0)
    scheduler.wait(app_id)
    assert stored.is_final("main", 0)
    assert stored.folder.journal_size() > 0
    scheduler.delete(app_id)
    assert stored.folder.journal_size() == -1


def test_another_process_can_describe_follow_and_cancel(
    launcher: Callable[..., subprocess.Popen[str]], home: Path, other: LocalScheduler
) -> None:
    code = """
import os, sys
os.environ["TORCHX_HOME"] = sys.argv[1]
from torchx_specs import AppDef, Role
from torchx_sched_local.scheduler import create_scheduler
scheduler = create_scheduler("launcher")
script = "echo up; exec sleep 5555"
role = Role("main", image="", entrypoint="sh", args=["-c", script], max_retries=3)
app_id = scheduler.schedule(scheduler.submit_dryrun(AppDef("app", [role]), {}))
print(app_id, flush=True)
scheduler.wait(app_id)
print(scheduler.describe(app_id).state.name, scheduler.describe(app_id).num_restarts, flush=True)
"""
    process = launcher(code, home)
    app_id = process.stdout.readline().strip()
    assert other.describe(app_id).state == AppState.RUNNING
    assert [app.state for app in other.list()] == [AppState.RUNNING]
    assert next(iter(other.log_iter(app_id, "main", should_tail=True))) == "up\n"
    other.wait(app_id, 0.01)
    other.cancel(app_id)
    found = other.describe(app_id)
    assert found.state == AppState.CANCELLED
    assert found.roles_statuses[0].replicas[0].state == AppState.CANCELLED
    assert found.roles_statuses[0].replicas[0].reason == "cancelled"
    assert process.stdout.readline() == "CANCELLED 0\n"
    assert process.wait(120) == 0


def test_app_deleted_by_another_scheduler_does_not_exist(
    scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    other.delete(app_id)
    assert other.describe(app_id) is None
    assert scheduler.describe(app_id) is None
    assert scheduler.list() == []


def test_deleted_app_does_not_exist_even_before_its_supervision_has_ended(
    scheduler: LocalScheduler, other: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    gate = threading.Event()
    app = scheduler._apps[app_id]
    supervision = app.supervision
    monkeypatch.setattr(app, "set_state", lambda _: gate.wait(20))
    try:
        other.delete(app_id)
        assert not supervision.ended.is_set()
        assert scheduler.describe(app_id) is None
    finally:
        gate.set()


def test_app_in_another_log_dir_is_found_by_its_id(
    scheduler: LocalScheduler, other: LocalScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, sh("echo here"), log_dir=str(tmp_path / "logs"))
    finish(scheduler, app_id)
    assert other.describe(app_id).ui_url == f"file://{tmp_path}/logs/test/{app_id}"
    assert lines(other, app_id) == ["here\n"]


def test_app_that_cannot_be_serialized_still_runs(
    scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    role = sh("true", metadata={"odd": object()})
    app_id = submit(scheduler, role)
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    [found] = other.describe(app_id).roles
    assert (found.name, found.entrypoint, found.num_replicas) == ("main", "sh", 1)


# -- The tests below run detached apps.


def test_detached_app_outlives_its_launcher(
    launcher: Callable[..., subprocess.Popen[str]],
    home: Path,
    other: LocalScheduler,
    tmp_path: Path,
) -> None:
    code = """
import os, sys
os.environ["TORCHX_HOME"] = sys.argv[1]
os.environ["FROM_LAUNCHER"] = "yes"
os.chdir(sys.argv[3])
from torchx_specs import AppDef, Role
from torchx_sched_local.scheduler import create_scheduler
scheduler = create_scheduler("launcher")
role = Role("main", "", entrypoint="sh", args=["-c", sys.argv[2]], num_replicas=2, max_retries=1)
app_id = scheduler.schedule(scheduler.submit_dryrun(AppDef("app", [role]), {"detach": True}))
print(app_id, scheduler.describe(app_id).state.name, flush=True)
scheduler.close()
os.kill(os.getpid(), 9)
"""
    script = (
        f'echo "$FROM_LAUNCHER $PWD $TORCHX_RESTART_COUNT ${{TORCHX_LOCAL_REPLICA##*/}}";'
        f" until [ -e {tmp_path}/go ]; do sleep 0.01; done;"
        " [ $TORCHX_RESTART_COUNT = 1 ] || exit 1"
    )
    process = launcher(code, home, script, tmp_path)
    app_id, state = process.stdout.readline().split()
    assert state == "RUNNING"
    process.wait(120)
    wait_for(lambda: lines(other, app_id))
    assert other.describe(app_id).state == AppState.RUNNING
    (tmp_path / "go").touch()
    found = finish(other, app_id)
    assert found.state == AppState.SUCCEEDED
    assert found.num_restarts == 1
    assert lines(other, app_id, k=1)[-1] == f"yes {tmp_path} 1 1\n"


def test_cancel_of_a_detached_app_ends_every_descendant(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    # The orphan has its own session and no environment. The supervisor finds it, because it has
    # become the orphan's parent, and because the orphan's output is a log file.
    script = (
        f"echo $$ >> {tmp_path}/pids;"
        f" (setsid env -i sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 5555' &);"
        " exec sleep 5555"
    )
    app_id = submit(scheduler, sh(script), detach=True)
    pids = read_pids(tmp_path / "pids", 2)
    scheduler.cancel(app_id)
    assert scheduler.describe(app_id).state == AppState.CANCELLED
    wait_for(lambda: not any(map(is_running, pids)))


def supervisor_of(app_id: str) -> int:
    found = StoredApp.find(app_id)
    assert found is not None
    return found.refresh().supervisor.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_to_the_supervisor_cancels_a_detached_app(
    scheduler: LocalScheduler, tmp_path: Path, number: int
) -> None:
    app_id = submit(
        scheduler, sh(f"echo $$ > {tmp_path}/pid; printf up; exec sleep 5555"), detach=True
    )
    [pid] = read_pids(tmp_path / "pid")
    os.kill(supervisor_of(app_id), number)
    found = finish(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert not is_running(pid)
    assert lines(scheduler, app_id) == ["up"]


def test_detached_app_ends_when_its_supervisor_is_killed(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, sh(f"echo $$ > {tmp_path}/pid; exec sleep 5555"), detach=True)
    [pid] = read_pids(tmp_path / "pid")
    os.kill(supervisor_of(app_id), signal.SIGKILL)
    found = finish(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert not is_running(pid)


def test_detached_app_that_cannot_start_is_an_error_and_leaves_no_files(
    scheduler: LocalScheduler, home: Path
) -> None:
    bad = Role("main", image="", entrypoint="no-such-program")
    with pytest.raises(RequestError, match="main/0: cannot run 'no-such-program': No such file"):
        submit(scheduler, bad, detach=True)
    assert scheduler.list() == []
    assert list((home / "local" / "test").iterdir()) == []


def test_detached_app_outlives_the_app_that_submitted_it(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    code = """
import os
from torchx_specs import AppDef, Role
from torchx_sched_local.scheduler import create_scheduler
scheduler = create_scheduler("inner")
role = Role("main", image="", entrypoint="sleep", args=["5555"])
scheduler.schedule(scheduler.submit_dryrun(AppDef("inner", [role]), {"detach": True}))
"""
    program, *args = python(code)
    found = run(scheduler, Role("main", image="", entrypoint=program, args=args))
    assert found.state == AppState.SUCCEEDED
    [inner] = [app for app in scheduler.list() if app.name == "inner"]
    assert inner.state == AppState.RUNNING
    scheduler.delete(inner.app_id)


def test_app_of_a_subclass_is_not_detached(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(LocalScheduler):
        pass

    from torchx_sched_local.scheduler import CWDImageProvider

    scheduler = Mine("test", CWDImageProvider)
    try:
        app_id = submit(scheduler, sh("true"), detach=True)
        assert app_id in scheduler._apps
        assert "only the launcher can start processes as Mine does" in caplog.text
    finally:
        scheduler.close()


# -- The tests below change or delete the files of apps.


def read_records(journal: Path) -> list[list[Any]]:
    return records.decode_lines(journal.read_bytes())[0]


def abandoned_app(home: Path, **supervisor: object) -> str:
    """Return the id of an app whose supervisor and guard died without recording an end."""
    scheduler = create_scheduler("test")
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    scheduler.close()
    private = home / "local" / "test" / app_id / ".torchx"
    journal = private / "journal"
    (private.parent / "SUCCESS").unlink()
    wait_for(lambda: not AppFolder(str(private.parent)).is_locked())  # until the guard has ended
    events = read_records(journal)
    with journal.open("wb") as file:
        for event in events:
            if event[0] == "supervisor":
                event[3] = supervisor.get("boot", event[3])
                event[4] = supervisor.get("node", event[4])
                event[2] = 1
            if event[0] in ("app", "request", "supervisor", "start"):
                file.write(records.encode(event))
    return app_id


def test_app_without_a_supervisor_is_cancelled(home: Path, other: LocalScheduler) -> None:
    app_id = abandoned_app(home)
    found = other.describe(app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg.startswith("ended with the program that started it (process")
    other.cancel(app_id)
    assert StoredApp.find(app_id).folder.run.state == AppState.CANCELLED  # the end was recorded


def test_app_that_another_process_has_just_begun_to_supervise_has_not_ended(
    home: Path, other: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = abandoned_app(home)
    monkeypatch.setattr(StoredApp, "_is_supervised", lambda self: False)  # a moment ago
    folder = AppFolder(str(home / "local" / "test" / app_id))
    folder.open_journal()
    assert other.describe(app_id).state == AppState.RUNNING
    folder.close()
    assert other.describe(app_id).state == AppState.CANCELLED


def test_log_of_a_replica_that_was_never_started_is_empty(
    home: Path, other: LocalScheduler
) -> None:
    app_id = abandoned_app(home)
    folder = home / "local" / "test" / app_id
    journal = folder / ".torchx" / "journal"
    events = read_records(journal)
    shutil.rmtree(folder / "main")
    with pytest.raises(BackendError, match="no log at"):  # a started replica must have a log
        lines(other, app_id)
    journal.write_bytes(b"".join(records.encode(e) for e in events if e[0] != "start"))
    fresh = create_scheduler("other")
    assert fresh.describe(app_id).state == AppState.CANCELLED
    assert lines(fresh, app_id) == []
    assert lines(fresh, app_id, should_tail=True) == []


def test_app_that_ran_at_a_restart_of_the_machine_has_failed(
    home: Path, other: LocalScheduler
) -> None:
    app_id = abandoned_app(home, boot="an earlier boot")
    found = other.describe(app_id)
    assert found.state == AppState.FAILED
    assert found.msg == "the machine restarted while the app ran"


def test_app_that_had_not_begun_when_the_machine_restarted_has_failed(
    home: Path, other: LocalScheduler
) -> None:
    scheduler = create_scheduler("test")
    app_id = submit(scheduler, sh("true"), requeue=True)
    finish(scheduler, app_id)
    folder = home / "local" / "test" / app_id
    wait_for(lambda: not AppFolder(str(folder)).is_locked())  # until the guard has ended
    (folder / "SUCCESS").unlink()
    journal = folder / ".torchx" / "journal"
    app, request, *_ = read_records(journal)
    app[1]["starter"]["boot"] = "an earlier boot"
    journal.write_bytes(records.encode(app) + records.encode(request))
    found = other.describe(app_id)
    assert (found.state, found.msg) == (AppState.FAILED, "the machine restarted while the app ran")


def test_app_of_another_machine_cannot_be_cancelled_here(home: Path, other: LocalScheduler) -> None:
    app_id = abandoned_app(home, node="elsewhere", boot="theirs")
    assert other.describe(app_id).state == AppState.RUNNING
    with pytest.raises(
        BackendError, match="runs on elsewhere; cancel or delete it on that machine"
    ):
        other.cancel(app_id)


def test_incomplete_last_line_of_the_journal_is_ignored(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    folder = AppFolder(str(home / "local" / "test" / app_id))
    journal = Path(folder.journal)
    text = journal.read_bytes()
    for cut in range(len(text)):
        journal.write_bytes(text[:cut])
        run = folder.read()
        assert folder.position == text[:cut].rfind(b"\n") + 1
        assert run.is_damaged == (folder.position == 0)  # a journal begins with the app
        assert run.state == AppState.RUNNING
    journal.write_bytes(text)
    assert folder.read().state == AppState.SUCCEEDED


def test_events_of_a_later_version_are_ignored() -> None:
    run = AppRun(rebuilt_app("app", {"main": 1}))
    run.apply(["a new kind", 1, 2, 3])
    run.apply(["start", 0, 0, 12, 34, 5.0])
    assert run.replicas[0].state == AppState.RUNNING
    assert run.last_updated == 5.0


DAMAGE = [b"", b"{", b"null\n", b"[]\n", b'["end"]\n', b'["end",5,"",0]\n', b"\0" * 50]


def app_names(scheduler: LocalScheduler) -> dict[str, AppState]:
    return {app.app_id: app.state for app in scheduler.list()}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_success_does_not_change_the_state(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler, damage: bytes
) -> None:
    failed = submit(scheduler, sh("exit 3"))
    assert finish(scheduler, failed).state == AppState.FAILED
    (home / "local" / "test" / failed / "SUCCESS").write_bytes(damage)
    assert app_names(other) == {failed: AppState.FAILED}
    assert other.describe(failed).roles_statuses[0].replicas[0].exit_code == 3


@pytest.mark.parametrize("damage", [*DAMAGE, None])
def test_lost_journal_does_not_hold_up_the_process_that_submitted_the_app(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler, damage: bytes | None
) -> None:
    good = submit(scheduler, sh("true", num_replicas=2))
    failed = submit(scheduler, sh("exit 3"))
    cancelled = submit(scheduler, sh("sleep 600"))
    scheduler.cancel(cancelled)
    for app_id in (good, failed, cancelled):
        finish(scheduler, app_id)
        path = home / "local" / "test" / app_id / ".torchx" / "journal"
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
    for app_id in (good, failed, cancelled):
        other.wait(app_id, 86400)
        found = other.describe(app_id)
        assert found.state == AppState.CANCELLED
        assert found.msg == "its journal was damaged, so that its final state is not known"
    assert [len(role.replicas) for role in other.describe(good).roles_statuses] == [2]
    assert set(app_names(create_scheduler("third")).values()) == {AppState.CANCELLED}
    for app_id in (good, failed, cancelled):
        other.delete(app_id)
    assert other.list() == []
    assert list((home / "local" / "test").iterdir()) == []


def replace_by(kind: str, path: Path) -> None:
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "sparse file":
        path.touch()
        os.truncate(path, 1 << 40)
    elif kind == "unreadable":  # reading fails with EIO, as on a defective disk
        path.symlink_to("/proc/self/mem")
    else:
        path.write_bytes(encode_text(b"[" * 100_000))


def encode_text(text: bytes) -> bytes:
    return b"%08x %s\n" % (binascii.crc32(text), text)


@pytest.mark.parametrize(
    "kind",
    ["directory", "link to itself", "FIFO", "sparse file", "deeply nested record", "unreadable"],
)
@pytest.mark.parametrize("name", [".torchx/journal", "SUCCESS"])
def test_another_kind_of_file_in_place_of_a_record_holds_up_nobody(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler, name: str, kind: str
) -> None:
    failed = submit(scheduler, sh("exit 3"))
    assert finish(scheduler, failed).state == AppState.FAILED
    replace_by(kind, home / "local" / "test" / failed / name)
    wait_for(lambda: is_terminal(other.describe(failed).state))  # until the guard has ended
    found = other.describe(failed)
    if name == "SUCCESS":
        assert found.state == AppState.FAILED
        assert found.roles_statuses[0].replicas[0].exit_code == 3
    else:
        assert found.state == AppState.CANCELLED
        assert found.msg == "its journal was damaged, so that its final state is not known"
    assert app_names(other) == {failed: found.state}
    other.delete(failed)
    assert app_names(other) == {}


def test_flipped_byte_in_the_journal_does_not_change_the_state(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("exit 4"))
    finish(scheduler, app_id)
    journal = home / "local" / "test" / app_id / ".torchx" / "journal"
    whole = journal.read_bytes()
    for i in range(len(whole)):
        journal.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        run = StoredApp.find(app_id).refresh()
        assert run.state == AppState.FAILED, i
        assert run.replicas[0].exit_code == 4 or run.replicas[0].reason == DAMAGED, i


def test_index_entry_that_links_elsewhere_is_not_an_app(
    home: Path, scheduler: LocalScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    # The name of a link in the index must be the id of the app in the folder.
    (home / "local" / ".apps" / "wrong").symlink_to(home / "local" / "test" / app_id)
    assert scheduler.describe("wrong") is None
    (home / "local" / ".apps" / "other").symlink_to(tmp_path)
    assert scheduler.describe("other") is None
    scheduler.delete("other")
    assert tmp_path.exists()


def test_unwritable_index_is_a_warning_for_an_app_in_another_log_dir(
    scheduler: LocalScheduler,
    home: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where a folder should be")
    found = run(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))
    assert found.state == AppState.SUCCEEDED
    assert "other processes cannot find app" in caplog.text
    with pytest.raises(RequestError, match="set TORCHX_HOME to a writable directory"):
        submit(scheduler, sh("true"))


def test_supervisor_module_reports_a_folder_without_an_app(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".torchx").mkdir()
    folder = AppFolder(str(tmp_path))
    folder.open_journal()
    journal = folder.fileno()
    module = "torchx_sched_local.supervise.start_supervisor"
    command = [sys.executable, "-m", module, "run", str(tmp_path), str(journal), "app"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, pass_fds=[journal])
    assert json.loads(done.stdout) == {
        "error": "RequestError",
        "message": f"the folder {tmp_path} has no app and request, or they are damaged",
    }


def test_prune_finds_only_apps_that_ended_long_ago(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    old = submit(scheduler, sh("echo hello"))
    elsewhere = submit(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))
    running = submit(scheduler, sh("sleep 5555"))
    finish(scheduler, old)
    finish(scheduler, elsewhere)
    assert list(unused_apps(PruneQuery())) == []  # the default age is a week
    first = list(unused_apps(PruneQuery(0.0)))
    second = list(unused_apps(PruneQuery(0.0)))
    assert [os.path.basename(found.name) for found in first] == [old]
    assert first[0].size is not None
    assert first[0].size > len("hello\n")
    for found in (*first, *second):  # as if two processes pruned at the same time
        assert found.remove is not None
        found.remove()
    assert scheduler.describe(old) is None
    assert {app.app_id for app in scheduler.list()} == {elsewhere, running}
