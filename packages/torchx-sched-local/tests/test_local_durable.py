"""Apps that outlive the object, the process or the machine that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from local_helpers import finish, is_running, lines, python, read_pids, run, sh, submit, until

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.store.retention import seconds_to_keep
from torchx_sched_local.store.stored_app import StoredApp
from torchx_specs import AppDef, AppState, Role, macros
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.status import is_terminal


@pytest.fixture
def other() -> LocalScheduler:
    return create_scheduler("another session")


def test_another_sees_the_same(scheduler: LocalScheduler, other: LocalScheduler) -> None:
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


def test_the_end_of_a_replica_is_seen_however_often_it_is_asked_for(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    wait = 'while [ ! -e "$GO" ]; do sleep 0.01; done'
    role = sh("[ ${replica_id} = 1 ] || " + wait, num_replicas=2, env={"GO": str(tmp_path / "go")})
    app_id = submit(scheduler, role)
    stored = StoredApp.find(app_id)
    assert stored is not None
    until(lambda: stored.is_final("main", 1))
    assert not stored.is_final("main", 0)
    (tmp_path / "go").touch()
    while not is_terminal(scheduler.describe(app_id).state):
        stored.is_final("main", 0)
    scheduler.wait(app_id)
    assert stored.is_final("main", 0)
    assert stored.folder.journal_size() > 0
    scheduler.delete(app_id)
    assert stored.folder.journal_size() == -1


def test_another_process_sees_follows_and_cancels(
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
    assert process.wait(20) == 0


def test_another_instance_deletes(scheduler: LocalScheduler, other: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    other.delete(app_id)
    assert other.describe(app_id) is None
    assert scheduler.describe(app_id) is None
    assert scheduler.list() == []


def test_what_another_instance_deletes_is_gone_before_its_last_steps(
    scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    gate = threading.Event()
    supervision = scheduler._apps[app_id].supervision
    supervision.on_end.append(lambda _: gate.wait(20))
    try:
        other.delete(app_id)
        assert not supervision.ended.is_set()
        assert scheduler.describe(app_id) is None
    finally:
        gate.set()


def test_log_dir_of_ones_own_is_found_by_id_too(
    scheduler: LocalScheduler, other: LocalScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, sh("echo here"), log_dir=str(tmp_path / "logs"))
    finish(scheduler, app_id)
    assert other.describe(app_id).ui_url == f"file://{tmp_path}/logs/test/{app_id}"
    assert lines(other, app_id) == ["here\n"]


def test_odd_text_survives_storing(scheduler: LocalScheduler, other: LocalScheduler) -> None:
    role = Role("r\u00f6le", image="", entrypoint="printf", args=["%s", "\udcff \u20ac"])
    app_id = submit(scheduler, role)
    mine = finish(scheduler, app_id)
    theirs = other.describe(app_id)
    assert theirs.roles_statuses == mine.roles_statuses
    request = other.describe_native(app_id).request
    assert request.role_params["r\u00f6le"][0].args == ["printf", "%s", "\udcff \u20ac"]


def test_app_that_cannot_be_stored_as_such_still_runs(
    scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    role = sh("true", metadata={"odd": object()})
    app_id = submit(scheduler, role)
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    [found] = other.describe(app_id).roles
    assert (found.name, found.entrypoint, found.num_replicas) == ("main", "sh", 1)


# -- detached -------------------------------------------------------------------------------------


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
    process.wait(20)
    until(lambda: lines(other, app_id))
    assert other.describe(app_id).state == AppState.RUNNING
    (tmp_path / "go").touch()
    found = finish(other, app_id)
    assert found.state == AppState.SUCCEEDED
    assert found.num_restarts == 1
    assert lines(other, app_id, k=1)[-1] == f"yes {tmp_path} 1 1\n"


def test_detached_app_is_cancelled_with_all_it_started(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    # an orphan with a session of its own and no environment: only its foster parent knows it
    script = (
        f"echo $$ >> {tmp_path}/pids;"
        f" (setsid env -i sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 5555' &);"
        " exec sleep 5555"
    )
    app_id = submit(scheduler, sh(script), detach=True)
    pids = read_pids(tmp_path / "pids", 2)
    scheduler.cancel(app_id)
    assert scheduler.describe(app_id).state == AppState.CANCELLED
    until(lambda: not any(map(is_running, pids)))


def supervisor_of(app_id: str) -> int:
    found = StoredApp.find(app_id)
    assert found is not None
    return found.refresh().supervisor.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_detached_app_ends_in_good_order_with_its_supervisor(
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


def test_detached_app_that_cannot_start_is_an_error_and_leaves_nothing(
    scheduler: LocalScheduler, home: Path
) -> None:
    bad = Role("main", image="", entrypoint="no-such-program")
    with pytest.raises(RequestError, match="main/0: cannot run 'no-such-program': No such file"):
        submit(scheduler, bad, detach=True)
    assert scheduler.list() == []
    assert list((home / "local" / "test").iterdir()) == []


def test_detached_app_within_an_app_outlives_that(
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


def test_subclass_is_not_detached(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(LocalScheduler):
        pass

    from torchx_sched_local.scheduler import CWDImageProvider

    scheduler = Mine("test", CWDImageProvider)
    try:
        app_id = submit(scheduler, sh("true"), detach=True)
        assert app_id in scheduler._apps
        assert "Mine starts processes in its own way" in caplog.text
    finally:
        scheduler.close()


# -- records --------------------------------------------------------------------------------------


def abandoned_app(home: Path, **supervisor: object) -> str:
    """An app whose supervisor and guard are gone without a word."""
    scheduler = create_scheduler("test")
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    scheduler.close()
    journal = home / "local" / "test" / app_id / ".torchx" / "journal"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    with journal.open("w") as file:
        for event in events:
            if event[0] == "supervisor":
                event[3] = supervisor.get("boot", event[3])
                event[4] = supervisor.get("node", event[4])
                event[2] = 1
            if event[0] == "guard":
                event[2] = 1
            if event[0] in ("supervisor", "guard", "start"):
                file.write(json.dumps(event) + "\n")
    return app_id


def test_app_whose_supervisor_vanished(home: Path, other: LocalScheduler) -> None:
    app_id = abandoned_app(home)
    found = other.describe(app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg == "ended with the program that had started it"
    other.cancel(app_id)
    assert StoredApp.find(app_id).folder.read_end()[0] == AppState.CANCELLED


def test_app_that_ran_when_the_machine_went_down(home: Path, other: LocalScheduler) -> None:
    app_id = abandoned_app(home, boot="an earlier one")
    found = other.describe(app_id)
    assert found.state == AppState.FAILED
    assert found.msg == "the machine was restarted while it ran"


def test_app_of_another_machine_is_left_alone(home: Path, other: LocalScheduler) -> None:
    app_id = abandoned_app(home, node="elsewhere", boot="theirs")
    assert other.describe(app_id).state == AppState.RUNNING
    with pytest.raises(BackendError, match="runs on elsewhere; end it there"):
        other.cancel(app_id)


def test_line_of_the_journal_that_is_not_whole_yet_is_not_read(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    folder = AppFolder(str(home / "local" / "test" / app_id))
    journal = Path(folder.journal)
    text = journal.read_bytes()
    for cut in range(len(text)):
        journal.write_bytes(text[:cut])
        events, position = folder.read_events(0)
        assert text[:cut].count(b"\n") == len(events)
        assert position == text[:cut].rfind(b"\n") + 1
        assert folder.read_end() is None
        run = AppRun(app_id, {"main": 1})
        for event in events:
            run.apply(event)
        assert run.state == AppState.RUNNING
    journal.write_bytes(text)
    assert folder.read_end()[0] == AppState.SUCCEEDED


def test_events_of_a_later_version_are_ignored() -> None:
    run = AppRun("app", {"main": 1})
    run.apply(["a new kind", 1, 2, 3])
    run.apply(["start", 0, 0, 12, 34, 5.0])
    assert run.replicas[0].state == AppState.RUNNING
    assert run.last_updated == 5.0


def test_damaged_records_are_no_app(
    home: Path, scheduler: LocalScheduler, other: LocalScheduler
) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    (home / "local" / "test" / app_id / ".torchx" / "app.json").write_text("{")
    assert other.describe(app_id) is None
    assert other.list() == []


def test_index_cannot_lead_elsewhere(home: Path, scheduler: LocalScheduler, tmp_path: Path) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    # a link of another name to an app's folder is not that app
    (home / "local" / ".apps" / "wrong").symlink_to(home / "local" / "test" / app_id)
    assert scheduler.describe("wrong") is None
    (home / "local" / ".apps" / "other").symlink_to(tmp_path)
    assert scheduler.describe("other") is None
    scheduler.delete("other")
    assert tmp_path.exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("2h", 7200), ("1.5d", 129600), ("3 w", 3 * 604800), ("soon", None), ("5", None)],
)
def test_retention_is_read(
    text: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_LOCAL_RETENTION", text)
    assert seconds_to_keep() == seconds


def test_old_records_go_if_told(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = submit(scheduler, sh("true"))
    elsewhere = submit(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))
    running = submit(scheduler, sh("sleep 5555"))
    finish(scheduler, old)
    finish(scheduler, elsewhere)
    monkeypatch.setenv("TORCHX_LOCAL_RETENTION", "0.2s")
    time.sleep(0.3)
    new = submit(scheduler, sh("true"))
    finish(scheduler, new)
    until(lambda: {app.app_id for app in scheduler.list()} == {elsewhere, running, new})
    assert scheduler.describe(old) is None


def test_index_that_cannot_be_written_is_a_warning_with_a_log_dir_of_ones_own(
    scheduler: LocalScheduler,
    home: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where a folder should be")
    found = run(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))
    assert found.state == AppState.SUCCEEDED
    assert "other processes will not find app" in caplog.text
    with pytest.raises(RequestError, match="cannot write the logs to"):
        submit(scheduler, sh("true"))


def test_supervisor_module_can_be_run(home: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torchx_sched_local.supervise.supervisor_process",
        "run",
        str(tmp_path),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "error": "RequestError",
        "message": f"{tmp_path} holds no app",
    }
