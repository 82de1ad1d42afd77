"""Tests of apps from submission to deletion, in the process that submitted them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from local_helpers import finish, lines, run, sh, submit

from patience import PATIENCE, wait_for
from torchx_sched_local.scheduler import LocalScheduler, _LocalAppDef, create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.closing import closing_of


def test_failed_app_has_the_exit_codes_and_a_reason(scheduler: LocalScheduler) -> None:
    found = run(
        scheduler, sh("exit $(( ${replica_id} * 3 ))", num_replicas=3), sh("kill -9 $$", "b")
    )
    assert found.state == AppState.FAILED
    assert found.msg == "main/1: exit code 3 (and 2 more replicas)"
    main, other = found.roles_statuses
    assert [r.exit_code for r in main.replicas] == [0, 3, 6]
    assert [r.state for r in main.replicas] == [AppState.SUCCEEDED] + [AppState.FAILED] * 2
    assert other.replicas[0].exit_code == -9
    assert other.replicas[0].reason == "killed by signal 9 (SIGKILL)"


def test_failed_replica_does_not_end_others(scheduler: LocalScheduler, tmp_path: Path) -> None:
    app_id = submit(
        scheduler, sh("exit 1", "bad"), sh(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done")
    )
    found = wait_for(
        lambda: (d := scheduler.describe(app_id)).roles_statuses[0].replicas[0].exit_code and d
    )
    assert found.state == AppState.RUNNING
    (tmp_path / "go").touch()
    assert finish(scheduler, app_id).state == AppState.FAILED


def test_fail_together_ends_the_other_replicas(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh("sleep 0.1; exit 5", "bad"), sh("sleep 100"), fail_together=True)
    assert found.state == AppState.FAILED
    assert found.msg == "bad/0: exit code 5"
    other = found.roles_statuses[1].replicas[0]
    assert other.state == AppState.CANCELLED
    assert other.reason == "ended because of bad/0: exit code 5"


def test_files_have_the_documented_names_and_contents(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, sh("echo out; echo err >&2; exit 2"), log_dir=str(tmp_path / "logs"))
    finish(scheduler, app_id)
    folder = tmp_path / "logs" / "test" / app_id
    assert (folder / "main/0/stdout.log").read_text() == "out\n"
    assert (folder / "main/0/stderr.log").read_text() == "err\n"
    assert sorted((folder / "main/0/combined.log").read_text().split()) == ["err", "out"]
    success = json.loads((folder / "SUCCESS").read_text())
    pid = success["roles"]["main"][0].pop("pid")
    assert isinstance(pid, int)
    assert success.pop("last_updated") > 0
    assert success == {
        "app_id": app_id,
        "log_dir": str(folder),
        "final_state": "FAILED",
        "message": "main/0: exit code 2",
        "num_restarts": 0,
        "roles": {
            "main": [
                {
                    "replica_id": 0,
                    "exitcode": 2,
                    "stdout": f"{folder}/main/0/stdout.log",
                    "stderr": f"{folder}/main/0/stderr.log",
                    "error_file": f"{folder}/main/0/error.json",
                    "state": "FAILED",
                    "reason": "exit code 2",
                    "restarts": 0,
                }
            ]
        },
    }


def test_files_with_secrets_are_private(scheduler: LocalScheduler, home: Path) -> None:
    app_id = submit(scheduler, sh("true", env={"TOKEN": "x"}))
    finish(scheduler, app_id)

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(home / "local") == 0o700
    private = home / "local" / "test" / app_id / ".torchx"
    assert mode(private) == 0o700
    assert {mode(path) for path in private.iterdir()} == {0o600}


def test_replica_inherits_the_environment(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_LAUNCHER", "yes")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    app_id = submit(scheduler, sh("env", env={"MINE": "${app_id}"}))
    finish(scheduler, app_id)
    env = dict(line.rstrip("\n").split("=", 1) for line in lines(scheduler, app_id) if "=" in line)
    assert env["FROM_LAUNCHER"] == "yes"
    assert env["MINE"] == app_id
    assert env["TORCHX_RANK0_HOST"] == "localhost"
    assert env["TORCHELASTIC_ERROR_FILE"].endswith(f"/{app_id}/main/0/error.json")
    assert env["PET_LOG_DIR"].endswith(f"/{app_id}/torchelastic/main")
    assert env["PYTHONUNBUFFERED"] == "x"
    assert env["TORCHX_RESTART_COUNT"] == "0"
    assert env["PATH"] == f"{os.environ['PATH']}:{os.getcwd()}"


def test_program_in_the_working_directory_is_found(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my-program"
    program.write_text('#!/bin/sh\necho "$0 in $PWD"\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    app_id = submit(scheduler, Role("main", image="", entrypoint="my-program"))
    finish(scheduler, app_id)
    assert lines(scheduler, app_id) == [f"{program} in {tmp_path}\n"]


@pytest.mark.parametrize(("prepend", "expected"), [(False, "theirs\n"), (True, "mine\n")])
def test_a_program_of_the_machine_precedes_one_in_the_working_directory(
    scheduler: LocalScheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepend: bool,
    expected: str,
) -> None:
    for folder, word in (("bin", "theirs"), ("cwd", "mine")):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "my-program"
        program.write_text(f"#!/bin/sh\necho {word}\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    role = Role("main", image="", entrypoint="my-program")
    app_id = submit(scheduler, role, prepend_cwd=prepend)
    finish(scheduler, app_id)
    assert lines(scheduler, app_id) == [expected]


def test_structured_error_is_that_of_the_first_failure(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    # Each replica waits for the other: replica 1 until 0 has its error, and 0 until 1 has one.
    report = 'printf "{\\"message\\": {\\"message\\": \\"boom %s\\"}}" ${replica_id}'
    script = (
        f"cd {tmp_path}; wait_for() {{ until [ -e $1 ]; do sleep 0.01; done; }};"
        " [ ${replica_id} = 0 ] || wait_for 0;"
        f" {report} > $TORCHELASTIC_ERROR_FILE; touch ${{replica_id}}; wait_for 1; exit 1"
    )
    found = run(scheduler, sh(script, num_replicas=2))
    assert json.loads(found.structured_error_msg) == {"message": {"message": "boom 0"}}
    assert found.structured_error_msg == '{"message":{"message":"boom 0"}}'
    errors = [json.loads(r.structured_error_msg) for r in found.roles_statuses[0].replicas]
    assert errors[1] == {"message": {"message": "boom 1"}}


def test_error_file_that_is_not_json_is_reported_unchanged(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh("echo plain text > $TORCHELASTIC_ERROR_FILE; exit 1"))
    assert found.structured_error_msg == "plain text"


@pytest.mark.parametrize(
    ("entrypoint", "reason"),
    [
        ("no-such-program", "cannot run 'no-such-program': No such file or directory"),
        ("/etc/passwd", "cannot run '/etc/passwd': Permission denied"),
        ("/", "cannot run '/': Permission denied"),
    ],
)
def test_program_that_cannot_be_run_is_an_error_and_leaves_no_files(
    scheduler: LocalScheduler, home: Path, entrypoint: str, reason: str
) -> None:
    with pytest.raises(RequestError, match=f"main/0: {reason}"):
        submit(scheduler, Role("main", image="", entrypoint=entrypoint, num_replicas=2))
    assert scheduler.list() == []
    assert list((home / "local" / "test").iterdir()) == []


def test_too_many_arguments_are_an_error(scheduler: LocalScheduler) -> None:
    role = Role("main", image="", entrypoint="true", args=["x" * 3_000_000])
    with pytest.raises(RequestError, match="main/0: cannot run 'true': Argument list too long"):
        submit(scheduler, role)


def test_program_that_cannot_be_run_does_not_end_other_replicas(scheduler: LocalScheduler) -> None:
    bad = Role("bad", image="", entrypoint="no-such-program")
    found = run(scheduler, sh("true"), bad)
    assert found.state == AppState.FAILED
    reason = found.roles_statuses[1].replicas[0].reason or ""
    assert found.msg == f"bad/0: {reason}"
    assert reason.startswith("cannot run 'no-such-program': No such file or directory in the fold")
    assert "/bin" in reason
    assert "or give its path" in reason
    assert found.roles_statuses[0].replicas[0].state == AppState.SUCCEEDED
    assert found.roles_statuses[1].replicas[0].exit_code is None


def test_program_that_cannot_be_run_ends_other_replicas_if_they_fail_together(
    scheduler: LocalScheduler,
) -> None:
    bad = Role("bad", image="", entrypoint="no-such-program")
    found = run(scheduler, sh("sleep 100"), bad, fail_together=True)
    assert found.state == AppState.FAILED
    assert found.roles_statuses[0].replicas[0].state == AppState.CANCELLED


def test_machine_without_resources_is_an_error_and_leaves_no_processes(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = LocalScheduler.run_local_job
    calls = []

    def fake_run(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(LocalScheduler, "run_local_job", fake_run)
    mark = f"{tmp_path}/mark"
    with pytest.raises(BackendError, match=r"main/2: .*Resource temporarily unavailable"):
        submit(scheduler, sh(f"exec sleep 4444 {mark}", num_replicas=4))
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(p)]
    assert scheduler.list() == []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_log_dir_that_cannot_be_created_is_an_error(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"cannot write the logs to .*/file.*: Not a directory"):
        submit(scheduler, sh("true"), log_dir=str(tmp_path / "file"))
    assert scheduler.list() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, which root alone may")
def test_full_disk_is_a_backend_error(scheduler: LocalScheduler, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        app_id = submit(scheduler, sh("head -c 60000 /dev/zero; echo end"), log_dir=str(disk))
        found = finish(scheduler, app_id)
        assert "combined.log of main/0 is incomplete: No space left on device" in found.msg
        with pytest.raises(BackendError, match="No space left on device"):
            submit(scheduler, sh("x" * 100_000), log_dir=str(disk))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_describe_native_returns_the_submitted_request(scheduler: LocalScheduler) -> None:
    info = scheduler.submit_dryrun(AppDef("app", [sh("true")]), {})
    app_id = scheduler.schedule(info)
    assert scheduler.describe_native(app_id) is info


def test_request_can_be_changed_before_it_is_submitted(scheduler: LocalScheduler) -> None:
    info = scheduler.submit_dryrun(AppDef("app", [sh("exit 1")]), {})
    info.request.role_params["main"][0].args = ["sh", "-c", "echo changed"]
    app_id = scheduler.schedule(info)
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    assert lines(scheduler, app_id) == ["changed\n"]


def test_list_has_apps_until_they_are_deleted(scheduler: LocalScheduler, home: Path) -> None:
    assert scheduler.list() == []
    one = submit(scheduler, sh("true"))
    finish(scheduler, one)
    two = submit(scheduler, sh("sleep 100"))
    found = {app.app_id: app for app in scheduler.list()}
    assert set(found) == {one, two}
    assert found[one].state == AppState.SUCCEEDED
    assert found[two].state == AppState.RUNNING
    assert found[one].name == "app"
    assert found[one].app_handle == f"local_cwd://test/{one}"
    scheduler.delete(one)
    scheduler.delete(two)
    assert scheduler.list() == []
    assert scheduler.describe(one) is None
    assert scheduler.describe(two) is None
    assert list((home / "local" / "test").iterdir()) == []
    assert list((home / "local" / ".apps").iterdir()) == []


def test_newest_apps_are_listed_without_reading_the_others(
    scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = [submit(scheduler, sh("true")) for _ in range(4)]
    for number, app_id in enumerate(reversed(apps)):
        finish(scheduler, app_id)
        # The links may have been made within one tick of the file system's clock.
        os.utime(home / "local" / ".apps" / app_id, (number, number), follow_symlinks=False)
    read: list[str] = []
    stored = scheduler._stored
    monkeypatch.setattr(scheduler, "_stored", lambda app: read.append(app) or stored(app))
    assert [app.app_id for app in islice(scheduler.list_newest(), 2)] == apps[:2] == read
    assert {app.app_id for app in scheduler.list_newest()} == {*apps}


def test_delete_keeps_other_files_in_the_log_dir(scheduler: LocalScheduler, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "mine.txt").touch()
    app_id = submit(scheduler, sh("true"), log_dir=str(logs))
    scheduler.delete(app_id)
    assert not (logs / "test" / app_id).exists()
    assert (logs / "mine.txt").exists()


def test_app_whose_folder_was_deleted_by_hand_does_not_exist(
    scheduler: LocalScheduler, home: Path
) -> None:
    import shutil

    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    shutil.rmtree(home / "local" / "test" / app_id)
    assert scheduler.list() == []
    assert scheduler.describe(app_id) is None
    assert list((home / "local" / ".apps").iterdir()) == []


def test_full_cache_evicts_the_oldest_ended_app_and_keeps_its_folder(tmp_path: Path) -> None:
    scheduler = create_scheduler("test", cache_size=2)
    try:
        first = submit(scheduler, sh("true"))
        finish(scheduler, first)
        second = submit(scheduler, sh("true"))
        finish(scheduler, second)
        third = submit(scheduler, sh("true"))
        assert set(scheduler._apps) == {second, third}
        assert scheduler.describe(first).state == AppState.SUCCEEDED
    finally:
        scheduler.close()


def test_more_running_apps_than_the_cache_holds_are_an_error() -> None:
    scheduler = create_scheduler("test", cache_size=1)
    try:
        submit(scheduler, sh("sleep 100"))
        with pytest.raises(IndexError, match="cache_size"):
            submit(scheduler, sh("true"))
        assert len(scheduler.list()) == 1
    finally:
        scheduler.close()


def test_close_ends_apps_and_keeps_their_folders(home: Path) -> None:
    scheduler = create_scheduler("test")
    app_id = submit(scheduler, sh("sleep 100"))
    scheduler.close()
    scheduler.close()
    assert scheduler.describe(app_id).state == AppState.CANCELLED
    assert create_scheduler("other").describe(app_id).state == AppState.CANCELLED
    again = submit(scheduler, sh("true"))  # a closed scheduler can still be used
    assert finish(scheduler, again).state == AppState.SUCCEEDED
    scheduler.close()


def test_close_ends_threads_that_follow_and_wait_for_an_app_of_another_scheduler(
    scheduler: LocalScheduler,
) -> None:
    app_id = submit(scheduler, sh("echo first; exec sleep 300"))
    other = create_scheduler("other")
    follows, followed, waited = threading.Event(), threading.Event(), threading.Event()
    found: list[str] = []

    def follow() -> None:
        for line in other.log_iter(app_id, "main", should_tail=True):
            found.append(line)
            follows.set()
        followed.set()

    closing = closing_of(other)  # until it is set, a thread that begins to wait uses it

    def wait() -> None:
        other.wait(app_id)
        waited.set()

    for function in (follow, wait):
        threading.Thread(target=function, daemon=True).start()
    assert follows.wait(PATIENCE)
    wait_for(lambda: len(closing._callbacks) == 2)  # both threads wait
    other.close()
    assert followed.wait(PATIENCE)
    assert waited.wait(PATIENCE)
    assert found == ["first\n"]
    assert scheduler.describe(app_id).state == AppState.RUNNING


def test_threads_may_drop_the_same_ended_app_from_memory(home: Path) -> None:
    scheduler = create_scheduler("test", cache_size=1)
    chosen = threading.Barrier(2)

    class Ended(_LocalAppDef):
        @property
        def last_updated(self) -> float:  # type: ignore[override]
            chosen.wait(PATIENCE)  # both threads have found the app
            return 0.0

        @last_updated.setter
        def last_updated(self, value: float) -> None:
            pass

    app = Ended("ended", str(home))
    app.state = AppState.SUCCEEDED
    scheduler._apps["ended"] = app
    with ThreadPoolExecutor(2) as pool:
        assert [f.result() for f in [pool.submit(scheduler._evict_lru) for _ in range(2)]]
    assert scheduler._apps == {}


def test_no_children_files_or_threads_are_left_after_the_end(scheduler: LocalScheduler) -> None:
    threads = threading.active_count()
    files = open_files()
    before = children()  # an earlier test may have made this process adopt orphans
    for _ in range(3):
        run(scheduler, sh("true", num_replicas=3))
    wait_for(lambda: threading.active_count() <= threads)
    wait_for(lambda: not open_files() - files)
    assert not children() - before


def children() -> set[str]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split())


def open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            pass  # this was the descriptor with which os.listdir read the folder
    return found


def test_app_with_many_replicas(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh("echo ${replica_id}", num_replicas=256))
    assert found.state == AppState.SUCCEEDED
    assert len(found.roles_statuses[0].replicas) == 256
    assert lines(scheduler, found.app_id, k=255) == ["255\n"]


def test_plugin_yields_local_cwd() -> None:
    from torchx_sched_local.plugin import torchx_schedulers

    [record] = torchx_schedulers()
    assert record.name == "local_cwd"
    assert record.load() is create_scheduler
    assert record.problem() is None


def test_unknown_factory_parameters_are_ignored() -> None:
    assert create_scheduler("s", docker_client=None, foo=1).session_name == "s"


def test_cancel_and_delete_do_not_describe_the_app(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(scheduler, sh("sleep 5555"))
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "describe", pytest.fail)
        scheduler.cancel(app_id)
    assert finish(scheduler, app_id).state == AppState.CANCELLED
    monkeypatch.setattr(scheduler, "describe", pytest.fail)
    for _ in range(2):
        scheduler.delete(app_id)
        scheduler.cancel(app_id)
