"""Tests of files that other users control, of error files, and of a low limit of open files."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from local_helpers import finish, lines, python, sh, submit

from patience import wait_for
from torchx_sched_local.describe import read_error
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store import safe_folders
from torchx_specs import AppState, RetryPolicy
from torchx_specs.errors import BackendError, RequestError


def test_swapped_folder_of_a_running_app_is_not_written_to(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    (victim / "main" / "0").mkdir(parents=True)
    files = [victim / "main" / "0" / f"{name}.log" for name in ("stdout", "stderr", "combined")]
    for file in files:
        file.write_text("precious\n")
    script = f"echo text; until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 1"
    app_id = submit(
        scheduler,
        sh(script, max_retries=1, retry_policy=RetryPolicy.REPLICA),
        log_dir=str(shared),
    )
    folder = shared / "test" / app_id
    wait_for(lambda: (folder / "main" / "0" / "stdout.log").read_text())
    moved = folder.rename(tmp_path / "moved")
    folder.symlink_to(victim)
    local_app = scheduler._apps[app_id]
    (tmp_path / "go").touch()
    scheduler.wait(app_id, 30)
    assert local_app.state == AppState.FAILED
    assert [file.read_text() for file in files] == ["precious\n"] * 3
    assert sorted(path.name for path in victim.rglob("*") if path.is_file()) == sorted(
        file.name for file in files
    )
    assert (moved / "main" / "0" / "combined.log").read_text() == "text\ntext\n"
    assert (moved / "SUCCESS").exists()


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777], ids=oct)
def test_folder_that_others_may_write_to_is_refused(
    scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    folder = home / "local" / "test" / app_id
    other = create_scheduler("other")
    folder.chmod(mode)
    with pytest.raises(BackendError, match="is not safe: other users can write to it"):
        other.describe(app_id)
    folder.chmod(0o755)
    assert other.describe(app_id).state == AppState.SUCCEEDED
    me = os.geteuid()
    monkeypatch.setattr(safe_folders.os, "geteuid", lambda: me + 1)
    with pytest.raises(BackendError, match="it belongs to the user '"):
        create_scheduler("third").describe(app_id)


def test_folders_are_not_writable_by_the_group_whatever_the_umask_is(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        app_id = submit(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))
    finally:
        os.umask(before)
    finish(scheduler, app_id)
    folder = tmp_path / "logs" / "test" / app_id
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o022 == 0, path


def test_link_in_place_of_the_folder_is_refused(scheduler: LocalScheduler, home: Path) -> None:
    app_id = submit(scheduler, sh("true"))
    finish(scheduler, app_id)
    folder = home / "local" / "test" / app_id
    moved = folder.rename(home / "moved")
    folder.symlink_to(moved)
    with pytest.raises(BackendError, match="is not safe: it is a link"):
        create_scheduler("other").describe(app_id)


def test_folder_of_another_user_in_place_of_a_new_one_is_refused(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    me = os.geteuid()
    monkeypatch.setattr(safe_folders.os, "geteuid", lambda: me + 1)
    with pytest.raises(RequestError, match="the folder is not safe: it belongs to the user"):
        submit(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))


def test_session_folder_that_is_a_link_is_refused(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.mkdir()
    (shared / "test").symlink_to(victim)
    with pytest.raises(RequestError, match=f"{shared}/test: the folder is not safe: it is a link"):
        submit(scheduler, sh("true"), log_dir=str(shared))
    assert list(victim.iterdir()) == []


def test_session_folder_of_another_user_is_refused(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = tmp_path / "test"
    session.mkdir()
    real = os.fstat

    def owned_by_another(fd: int) -> os.stat_result:
        found = list(real(fd))
        if found[1] == session.stat().st_ino:
            found[4] = os.geteuid() + 1
        return os.stat_result(found)

    monkeypatch.setattr(safe_folders.os, "fstat", owned_by_another)
    with pytest.raises(RequestError, match=r"it belongs to the user .+; choose"):
        submit(scheduler, sh("true"), log_dir=str(tmp_path))
    assert list(session.iterdir()) == []


def test_log_dir_itself_may_be_a_link(scheduler: LocalScheduler, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "disk")
    app_id = submit(scheduler, sh("true"), log_dir=str(tmp_path / "logs"))
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    assert (tmp_path / "disk" / "test" / app_id / "SUCCESS").exists()


def test_session_folder_that_the_group_may_write_to_is_closed_to_it(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    session = tmp_path / "test"
    session.mkdir()
    session.chmod(0o2775)
    app_id = submit(scheduler, sh("true"), log_dir=str(tmp_path))
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    assert session.stat().st_mode & 0o7777 == 0o2755


def test_sticky_session_folder_is_accepted_and_stays_as_it_is(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    session = tmp_path / "test"
    session.mkdir()
    session.chmod(0o1777)
    app_id = submit(scheduler, sh("true"), log_dir=str(tmp_path))
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    assert session.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("name", ["combined.log", "stdout.log"])
def test_fifo_in_place_of_a_log_blocks_nobody(
    scheduler: LocalScheduler, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "logs" / "test"
    script = (
        f"cd {folder}/*/main/0; rm -f {name}; mkfifo {name}; touch {tmp_path}/up;"
        f" echo text; until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo more"
    )
    app_id = submit(scheduler, sh(script), log_dir=str(tmp_path / "logs"))
    wait_for((tmp_path / "up").exists)
    (tmp_path / "go").touch()
    found = finish(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert name != "combined.log" or "combined.log of main/0 is incomplete" in found.msg
    other = create_scheduler("other")
    assert other.describe(app_id).state == AppState.SUCCEEDED
    if name == "combined.log":
        with pytest.raises(BackendError, match="not a regular file"):
            lines(other, app_id)


@pytest.mark.parametrize(
    "content", ["[" * 40_000, '{"a":' * 20_000, "x" * 5_000_000, '{"message": "' + "x" * 40_000_000]
)
def test_error_file_of_any_content_is_shown_up_to_a_limit(tmp_path: Path, content: str) -> None:
    path = tmp_path / "error.json"
    path.write_text(content)
    shown = read_error(str(path))
    assert len(shown) < 10_000
    assert f"[shortened; the whole error is in {path}]" in shown


def test_fifo_in_place_of_an_error_file_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "error.json")
    assert read_error(str(tmp_path / "error.json")) == "<NONE>"


# -- The tests below run with few file descriptors.

MANY = """
import resource, time
import torchx_specs as specs
from torchx_sched_local.describe import read_error
from torchx_sched_local.scheduler import create_scheduler
soft, hard, count, detach = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
scheduler = create_scheduler("launcher")
role = specs.Role("main", image="", entrypoint="sh", args=["-c", "ulimit -Sn; sleep 0.3"],
                  num_replicas=count)
app_id = scheduler.schedule(
    scheduler.submit_dryrun(specs.AppDef("app", [role]), {"detach": bool(detach)}))
scheduler.wait(app_id)
found = scheduler.describe(app_id)
limits = {line for k in range(count) for line in scheduler.log_iter(app_id, "main", k)}
print(found.state, {r.exit_code for r in found.roles_statuses[0].replicas}, limits)
scheduler.close()
"""


@pytest.mark.parametrize("detach", [0, 1])
@pytest.mark.parametrize(("soft", "hard", "count"), [(64, 64, 70), (100, 100, 100), (64, 500, 100)])
def test_as_many_replicas_as_descriptors(soft: int, hard: int, count: int, detach: int) -> None:
    command = python(MANY, soft, hard, count, detach)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == f"SUCCEEDED {{0}} {{'{soft}\\n'}}\n"


FOLLOWED = """
import os, resource, time
import torchx_specs as specs
from torchx_sched_local.scheduler import create_scheduler
from torchx_specs.schedulers.logs import LogQuery
soft, count = map(int, sys.argv[1:3])
go = sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
scheduler = create_scheduler("launcher")
script = f"echo start; until [ -e {go} ]; do sleep 0.1; done; echo end"
role = specs.Role("main", image="", entrypoint="sh", args=["-c", script], num_replicas=count)
app_id = scheduler.schedule(scheduler.submit_dryrun(specs.AppDef("app", [role]), {}))
replicas = [("main", k) for k in range(count)]
seen = []
for replica, block in scheduler.app_logs.read_many(app_id, replicas, LogQuery(should_tail=True)):
    seen += [str(block)] if isinstance(block, Exception) else block
    if len(seen) == count:
        os.mkdir(go)  # needs no descriptor
scheduler.wait(app_id)
print(sorted(set(seen)), len(seen), scheduler.describe(app_id).state)
scheduler.close()
"""


def test_logs_of_as_many_replicas_as_descriptors_are_followed_to_their_end(tmp_path: Path) -> None:
    command = python(FOLLOWED, 64, 70, tmp_path / "go")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == "['end\\n', 'start\\n'] 140 SUCCEEDED\n"


def test_a_line_that_could_not_be_merged_is_merged_later(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[ReplicaLogs] = []
    merge = ReplicaLogs.merge

    def fail_first(self: ReplicaLogs, final: bool = False) -> None:
        if self not in failed:
            failed.append(self)
            raise OSError(errno.EMFILE, "Too many open files")
        merge(self, final)

    monkeypatch.setattr(ReplicaLogs, "merge", fail_first)
    app_id = submit(scheduler, sh(f"echo start; until [ -e {tmp_path}/go ]; do sleep 0.1; done"))
    wait_for(lambda: list(scheduler.log_iter(app_id, "main")) == ["start\n"])
    assert failed
    (tmp_path / "go").touch()
    scheduler.wait(app_id)


def test_processes_count_as_alive_while_no_file_can_be_opened() -> None:
    code = """
import os, resource, subprocess
from torchx_sched_local.supervise.processes import replica_processes
child = subprocess.Popen(["sleep", "5555"])
process = replica_processes.identify(child.pid)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    while True:
        os.dup(1)
except OSError:
    pass
alive = replica_processes.is_alive(process)
signalled = replica_processes.send_signal(process, 9)
child.wait()
print(alive, signalled, replica_processes.is_alive(process))
"""
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True True False\n", "")
