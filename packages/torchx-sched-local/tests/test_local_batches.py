"""Tests of batches: of apps with a common record that the thread that starts them supervises."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, is_running, lines, python, read_pids

from patience import wait_for
from torchx_sched_local.batches import batch_index
from torchx_sched_local.batches.batch_app_folder import BatchAppFolder
from torchx_sched_local.batches.batch_files import ROOM_BYTES, SLOT_BYTES, BatchFiles
from torchx_sched_local.batches.request_template import RequestTemplate
from torchx_sched_local.image_providers import CWDImageProvider
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_sched_local.store import index, records, retention
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.spawn import SpawnedProcess, spawn
from torchx_specs import AppDef, Role
from torchx_specs.model.status import AppState
from torchx_specs.schedulers import Stream

pytestmark = pytest.mark.skipif(not process_table.IS_LINUX, reason="prctl is part of Linux")

Launcher = Callable[..., "subprocess.Popen[str]"]

# This program starts an app in a batch for each argument, prints the ids of the apps, and
# supervises the apps until all have ended. Then it prints how the apps ended.
_PROGRAM = """
import json
from torchx_sched_local.scheduler import create_scheduler
from torchx_specs import AppDef, Role

def app(text):
    role = Role("main", image="", entrypoint="sh", args=["-c", text], env={"TEXT": text})
    return AppDef(f"app {text}", [role])

scheduler = create_scheduler("test")
scheduler.share_supervision()
ends = scheduler.supervise_here()
first = app("first")
batch = scheduler.open_batch("batch", first, scheduler.submit_dryrun(first, {}))
ids = [scheduler.start_in_batch(batch, app(text)) for text in sys.argv[1:]]
print(json.dumps(ids), flush=True)
ended = {}
while len(ended) < len(ids):
    for app_id, state, msg in ends.wait(1):
        ended[app_id] = [state.name, msg]
assert not scheduler._apps
scheduler.close()
print(json.dumps([ended[i] for i in ids]), flush=True)
"""


def run(*texts: str) -> tuple[list[str], list[Any]]:
    """Run the apps in another process until all have ended.

    Returns:
        The ids of the apps, and for each app its final state and the reason.
    """
    done = subprocess.run(python(_PROGRAM, *texts), capture_output=True, text=True, check=True)
    ids, ends = map(json.loads, done.stdout.splitlines())
    return ids, ends


def read_ids(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    ids: list[str] = json.loads(process.stdout.readline())
    return ids


def kill_program(process: subprocess.Popen[str]) -> None:
    """Kill the program: it continues in a child, and the first process becomes its guard."""
    with contextlib.suppress(OSError):  # it has ended
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]) if children else process.pid, signal.SIGKILL)


def role(*args: str, **fields: Any) -> Role:
    return Role("main", image="", entrypoint="sh", args=list(args), **fields)


def test_ends_are_reported_and_other_processes_read_them(scheduler: LocalScheduler) -> None:
    ids, ends = run("echo out; echo err >&2", "exit 3", "kill -9 $$")
    assert ends == [
        ["SUCCEEDED", ""],
        ["FAILED", "main/0: exit code 3"],
        ["FAILED", "main/0: killed by signal 9 (SIGKILL)"],
    ]
    described = [scheduler.describe(app_id) for app_id in ids]
    assert [found and found.state.name for found in described] == [state for state, _ in ends]
    assert [found and found.roles_statuses[0].replicas[0].exit_code for found in described] == [
        0,
        3,
        -9,
    ]
    assert lines(scheduler, ids[0], streams=Stream.STDOUT) == ["out\n"]
    assert sorted(lines(scheduler, ids[0])) == ["err\n", "out\n"]
    assert lines(scheduler, ids[1], should_tail=True) == []
    listed = {app.app_id: app for app in scheduler.list()}
    assert [listed[i].name for i in ids] == [
        "app echo out; echo err >&2",
        "app exit 3",
        "app kill -9 $$",
    ]
    assert [listed[i].exit_code for i in ids] == [0, 3, -9]
    first = described[0]
    assert first is not None
    assert first.roles[0].args == ["-c", "echo out; echo err >&2"]
    assert first.roles[0].env["TEXT"] == "echo out; echo err >&2"


def test_processes_get_the_environment_of_their_app(scheduler: LocalScheduler) -> None:
    script = 'echo "$TORCHX_RESTART_COUNT $(dirname "$TORCHELASTIC_ERROR_FILE")"'
    (app_id,), _ = run(f"{script}; ps -o sid= $$; echo $$")
    folder = index.find(app_id)
    assert folder is not None
    text, session, pid = lines(scheduler, app_id)
    assert text == f"0 {folder.path}\n"
    assert session.strip() == pid.strip()


def test_a_program_that_cannot_be_run_leaves_no_app(launcher: Launcher) -> None:
    code = _PROGRAM.replace('entrypoint="sh"', 'entrypoint="no-such-program"')
    process = launcher(code.replace("ids = [", "sys.stderr = sys.stdout\nids = ["), "true")
    out, _ = process.communicate(timeout=120)
    assert "RequestError: main/0: cannot run 'no-such-program'" in out
    assert batch_index.app_ids() == []


def test_an_error_file_is_the_reason_of_a_failure(scheduler: LocalScheduler) -> None:
    (app_id,), _ = run('echo \'{"message": "no data"}\' > $TORCHELASTIC_ERROR_FILE; exit 1')
    found = scheduler.describe(app_id)
    assert found is not None
    assert "no data" in found.structured_error_msg


def test_a_killed_process_leaves_no_app_running(
    scheduler: LocalScheduler, launcher: Launcher, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    sleep = f"echo $$ >> {file}; exec sleep 5555"
    daemon = f"(env -i setsid sleep 5555 & echo $! >> {file}); {sleep}"
    process = launcher(_PROGRAM, "true", sleep, daemon)
    ids = read_ids(process)
    pids = read_pids(file, 3)
    wait_for(lambda: scheduler.describe(ids[0]).state == AppState.SUCCEEDED)
    running = scheduler.describe(ids[1])
    assert running is not None
    assert running.state == AppState.RUNNING
    kill_program(process)
    wait_for(lambda: not any(map(is_running, pids)))
    states = [finish(scheduler, app_id).state for app_id in ids]
    assert states == [AppState.SUCCEEDED, AppState.CANCELLED, AppState.CANCELLED]
    wait_for(lambda: all(folder.read_end() for folder in map(index.find, ids) if folder))


def test_kills_at_random_moments_leave_a_true_record(
    scheduler: LocalScheduler, launcher: Launcher, tmp_path: Path
) -> None:
    generator = random.Random(18)  # noqa: S311 - no cryptography
    for i in range(8):
        file = tmp_path / f"started{i}"
        process = launcher(_PROGRAM, *[f"echo {n} >> {file}" for n in range(40)])
        timer = threading.Timer(generator.uniform(0.2, 0.8), kill_program, [process])
        timer.start()
        process.wait()
        timer.cancel()
        known = [app for app in scheduler.list() if str(file) in app.name]
        ended = {app.name: finish(scheduler, app.app_id).state for app in known}
        assert len(ended) == len(known)
        started = file.read_text().split() if file.exists() else []
        assert len(started) == len(set(started))
        # Every app whose process ran has a record.
        assert {f"app echo {n} >> {file}" for n in started} <= ended.keys()
        for name, state in ended.items():
            if state == AppState.SUCCEEDED:
                assert name.split()[2] in started


def test_another_process_cancels_one_app(
    scheduler: LocalScheduler, launcher: Launcher, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    sleep = f"echo $$ >> {file}; exec sleep 5555"
    process = launcher(_PROGRAM, sleep, f"{sleep} # other")
    ids = read_ids(process)
    read_pids(file, 2)
    scheduler.cancel(ids[0])
    found = scheduler.describe(ids[0])
    assert found is not None
    assert found.state == AppState.CANCELLED
    other = scheduler.describe(ids[1])
    assert other is not None
    assert other.state == AppState.RUNNING
    scheduler.delete(ids[1])
    assert scheduler.describe(ids[1]) is None
    assert process.stdout is not None
    assert [state for state, _ in json.loads(process.stdout.readline())] == ["CANCELLED"] * 2
    assert not any(map(is_running, read_pids(file, 2)))
    assert process.wait(120) == 0


def test_the_last_deletion_deletes_the_batch(scheduler: LocalScheduler, home: Path) -> None:
    ids, _ = run("true", "exit 1")
    batch = Path(index.find(ids[0]).path).parent
    # A process that is killed before it records an app leaves such a folder.
    (batch / f"{batch.name}-2").mkdir()
    scheduler.delete(ids[0])
    assert scheduler.describe(ids[0]) is None
    assert [app.app_id for app in scheduler.list()] == ids[1:]
    scheduler.delete(ids[1])
    assert scheduler.list() == []
    assert not batch.exists()
    assert os.listdir(home / "local" / ".apps" / ".batches") == []


def test_old_apps_of_batches_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    run("true", "true #2")
    monkeypatch.setenv(retention.ENV_RETENTION, "0s")
    retention.delete_old_apps()
    assert index.app_ids() == []


def test_a_damaged_event_does_not_hide_the_app(scheduler: LocalScheduler) -> None:
    (app_id,), _ = run("true")
    folder = index.find(app_id)
    assert folder is not None
    path = Path(folder.journal)
    data = bytearray(path.read_bytes())
    end = data.rstrip(b"\0").rfind(b'["end"')
    data[end + 2] = ord("x")
    path.write_bytes(data)
    found = finish(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED


@pytest.mark.parametrize("name", ["elements", "batch.json"])
@pytest.mark.parametrize("kind", ["directory", "FIFO", "unreadable"])
def test_another_kind_of_file_does_not_hide_or_keep_an_app(
    scheduler: LocalScheduler, name: str, kind: str
) -> None:
    ids, _ = run("true", "exit 3")
    folder = index.find(ids[0])
    assert folder is not None
    path = Path(folder.path).parent / ".torchx" / name
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    else:  # reading fails with EIO, as on a defective disk
        path.symlink_to("/proc/self/mem")
    states = [finish(scheduler, app_id).state for app_id in ids]
    assert states == [AppState.SUCCEEDED, AppState.FAILED]
    assert {app.app_id: app.state for app in scheduler.list()} == dict(
        zip(ids, states, strict=True)
    )
    scheduler.delete(ids[0])
    assert [app.app_id for app in scheduler.list()] == ids[1:]


def batch_files(path: Path) -> BatchFiles:
    files = BatchFiles(str(path))
    files.create("", {"batch_id": path.name})
    return files


def test_long_texts_of_events_are_shortened(tmp_path: Path) -> None:
    files = batch_files(tmp_path / "b")
    for number in range(2):
        folder = BatchAppFolder(str(tmp_path / "b" / f"b-{number}"), files)
        folder.create("")
        folder.describe({"name": "x"}, b"")
        folder.append([["exit", 0, 0, 5, 1, "\N{SNOWMAN}" * 900, 1, 1.0]])
        folder.append([["end", AppState.FAILED.value, "y" * 5000, 2.0]])
        assert folder.read_end() == (AppState.FAILED, 2.0)
        assert not folder.read_events(0)[2]
        assert folder.journal_size() <= ROOM_BYTES
        folder.mark_cancelled()
        assert folder.is_cancelled()
        folder.close()
    assert os.path.getsize(files.slots) >= 2 * SLOT_BYTES
    files.close()


FIRST_EVENTS = b"".join(
    [
        records.encode(["supervisor", 4000000, 123456789, "b" * 36, "n" * 64, 1.5]),
        records.encode(["guard", 4000001, 123456789, 1.5]),
    ]
)


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[BatchAppFolder]:
    """The folder of an app with its first events, which are not written yet."""
    files = batch_files(tmp_path / "b")
    folder = BatchAppFolder(str(tmp_path / "b" / "b-0"), files)
    folder.create("")
    folder.describe({"name": "x"}, FIRST_EVENTS)
    yield folder
    folder.close()
    files.close()


@pytest.mark.parametrize("length", [*range(0, 400, 7), 5000])
def test_a_long_reason_leaves_room_for_the_end(slot: BatchAppFolder, length: int) -> None:
    slot.append([["start", 0, 0, 4000002, 123456789, 1.5]])
    slot.append([["exit", 0, 0, 5, 1, "\N{SNOWMAN}" * length, 1, 1.5]])
    slot.append([["end", AppState.FAILED.value, "\N{SNOWMAN}" * length, 2.5]])
    assert slot.read_end() == (AppState.FAILED, 2.5)
    assert [event[0] for event in slot.read_events(0)[0]][3:] == ["start", "exit", "end"]


def test_events_that_do_not_fit_do_not_hold_back_earlier_events(slot: BatchAppFolder) -> None:
    slot.append([["unknown", "x" * 5000, 1.5]])
    assert [event[0] for event in slot.read_events(0)[0]] == ["element", "supervisor", "guard"]


def test_the_end_is_written_without_events_that_do_not_fit(slot: BatchAppFolder) -> None:
    slot.append([["unknown", "x" * 5000, 1.5], ["end", AppState.FAILED.value, "", 2.5]])
    assert slot.read_end() == (AppState.FAILED, 2.5)


# This code precedes _PROGRAM: writing the end of an app into its slot fails.
_FAILING_DISK = """
import errno, os
from torchx_sched_local.batches.batch_files import BatchFiles

def fail(*args, **kwargs):
    raise OSError(errno.EIO, os.strerror(errno.EIO))

write_slot = BatchFiles.write_slot
BatchFiles.write_slot = lambda *args: fail() if b'["end"' in args[-1] else write_slot(*args)
"""


def run_on_failing_disk(more: str = "") -> tuple[str, str]:
    """Run an app that succeeds, and return its id and the standard error of its launcher."""
    code = python(_FAILING_DISK + more + _PROGRAM, "true")
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    (app_id,) = json.loads(done.stdout.splitlines()[0])
    return app_id, done.stderr


def test_an_end_that_cannot_be_written_is_reported_and_marked(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, errors = run_on_failing_disk()
    assert f"other processes cannot see why app {app_id} is SUCCEEDED" in errors
    assert "Input/output error" in errors
    folder = index.find(app_id)
    assert folder is not None
    with monkeypatch.context() as patch:
        # This process cannot record the end either, but reads it.
        patch.setattr(BatchFiles, "write_slot", lambda *_: os.read(-1, 1))
        assert finish(scheduler, app_id).state == AppState.SUCCEEDED
        assert [app.state for app in scheduler.list()] == [AppState.SUCCEEDED]
    assert finish(create_scheduler("other"), app_id).state == AppState.SUCCEEDED
    assert folder.read_events(0)[0][-1][:2] == ["end", AppState.SUCCEEDED.value]
    scheduler.delete(app_id)
    assert index.find(app_id) is None


def test_an_end_without_any_record_is_reported() -> None:
    app_id, errors = run_on_failing_disk(
        "link = os.symlink\n"
        'os.symlink = lambda *a, **k: fail() if a[1] == ".ended" else link(*a, **k)\n'
    )
    assert f"other processes cannot see that app {app_id} is SUCCEEDED" in errors


def test_an_end_that_does_not_fit_into_a_damaged_slot_is_an_error(slot: BatchAppFolder) -> None:
    Path(slot.journal).write_bytes(b"x" * ROOM_BYTES + b"\0")
    slot.mark_cancelled()
    another = BatchAppFolder(slot.path)
    another.open_journal()
    another.complete_last_line()
    assert another.is_cancelled()
    with pytest.raises(OSError, match="the slot of the app is damaged, and full"):
        another.append([["end", AppState.FAILED.value, "", 2.5]])
    another.close()


def test_one_process_at_a_time_records_the_end_of_an_app(tmp_path: Path) -> None:
    files = batch_files(tmp_path / "b")
    folders = []
    for number in (0, 0, 1):
        folder = BatchAppFolder(str(tmp_path / "b" / f"b-{number}"))
        os.makedirs(folder.path, exist_ok=True)
        folder.open_journal()
        folders.append(folder)
    folders[0].lock()
    with pytest.raises(BlockingIOError):
        folders[1].lock(blocking=False)
    folders[2].lock(blocking=False)  # the slot of another app is not locked
    folders[0].close()
    folders[1].lock(blocking=False)
    for folder in folders:
        folder.close()
    files.close()


def dry_run(scheduler: LocalScheduler, app: AppDef, **cfg: Any) -> RequestTemplate | None:
    return RequestTemplate.of(app, scheduler.submit_dryrun(app, cfg), CWDImageProvider({}))


def test_requests_of_a_template_are_those_of_dry_runs(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    env = {"A": "1", "ID": "${app_id} of $replica_id", "PRICE": "$5"}
    template = dry_run(scheduler, AppDef("first", [role("-c", "true", env=env)]))
    assert template is not None
    template = RequestTemplate(json.loads(json.dumps(template.data)))
    env = {"A": "${img_root}", "ID": "none", "PRICE": "$$6 ${app_id}"}
    args = ["-c", "echo ${app_id} $$HOME", "$$x", "\N{SNOWMAN}"]
    assert template.matches(args, env)
    other = scheduler.submit_dryrun(AppDef("second", [role(*args, env=env)]), {}).request
    request = template.request(other.app_id, other.log_dir, args, env)
    (mine,), (expected,) = request.role_params["main"], other.role_params["main"]
    assert mine.args == expected.args
    assert mine.cwd == expected.cwd
    folder = f"{other.log_dir}/main/0"
    assert {k: v.replace(folder, other.log_dir) for k, v in expected.env.items()} == mine.env
    assert template.environment(template.differences(env)) == env


@pytest.mark.parametrize(
    ("app_role", "cfg"),
    [
        (role(num_replicas=2), {}),
        (role(max_retries=1), {}),
        (role(env={"PATH": "/x"}), {}),
        (role(env={"TOKEN": "${secret:hf}"}), {}),
        (role(), {"auto_set_cuda_visible_devices": True}),
    ],
)
def test_apps_that_need_more_than_a_template_have_none(
    scheduler: LocalScheduler, app_role: Role, cfg: dict[str, Any]
) -> None:
    assert dry_run(scheduler, AppDef("app", [app_role]), **cfg) is None


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["a\0b"], {"A": ""}),
        (["\udc80"], {"A": ""}),
        ([], {"A": "${secret:hf}"}),
        ([], {"A": "", "B": ""}),
        ([], {}),
    ],
)
def test_a_template_leaves_unusual_apps_to_a_dry_run(
    scheduler: LocalScheduler, args: list[str], env: dict[str, str]
) -> None:
    template = dry_run(scheduler, AppDef("app", [role(env={"A": "1"})]))
    assert template is not None
    assert template.matches(["x"], {"A": "2"})
    assert not template.matches(args, env)


def test_a_spawned_process_has_the_methods_of_popen(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        fd = file.fileno()
        process = spawn("/bin/sh", ["sh", "-c", "echo $0; sleep 5555"], {}, fd, fd)
        assert isinstance(process, SpawnedProcess)
        wait_for(lambda: (tmp_path / "out").read_text() == "sh\n")
        assert process.poll() is None
        assert os.getsid(process.pid) == process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(120) == -signal.SIGKILL
        process.kill()
        assert spawn("/no/such/program", ["x"], {}, fd, fd) is None
