"""Tests of arrays: many apps that are the replicas of one app."""

from __future__ import annotations

import os
import signal
import subprocess
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, is_running, lines, read_pids, sh

from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_specs import AppDef, AppDryRunInfo, AppState, Resource
from torchx_specs.errors import CapacityError, RequestError

Launcher = Callable[..., "subprocess.Popen[str]"]


def submit(
    scheduler: LocalScheduler, scripts: Sequence[str], limit: int | None = None, **cfg: object
) -> list[str]:
    infos = [
        scheduler.submit_dryrun(AppDef(f"job-{i}", [sh(script)]), cfg)
        for i, script in enumerate(scripts)
    ]
    return list(scheduler.app_arrays.submit(infos, limit))


def states(scheduler: LocalScheduler, app_ids: Sequence[str]) -> list[AppState]:
    return [scheduler.describe(app_id).state for app_id in app_ids]


@pytest.mark.parametrize("detach", [False, True])
def test_elements_are_apps_with_states_and_logs_of_their_own(
    scheduler: LocalScheduler, detach: bool
) -> None:
    scripts = ["echo one", "echo two; exit 3", "echo ${app_id} $TORCHX_RESTART_COUNT"]
    app_ids = submit(scheduler, scripts, 2, detach=detach)
    found = [finish(scheduler, app_id) for app_id in app_ids]
    assert [app.state.name for app in found] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert found[1].msg == "exit code 3"
    assert found[1].roles_statuses[0].replicas[0].exit_code == 3
    assert [app.roles[0].args[1] for app in found] == scripts
    array = app_ids[0].rpartition(".")[0]
    assert app_ids == [f"{array}.{k}" for k in range(3)]
    assert lines(scheduler, app_ids[1]) == ["two\n"]
    assert lines(scheduler, app_ids[2]) == [f"{app_ids[2]} 0\n"]
    listed = {app.app_id: app for app in create_scheduler("other").list()}
    assert [listed[app_id].name for app_id in app_ids] == ["job-0", "job-1", "job-2"]
    assert [listed[app_id].exit_code for app_id in app_ids] == [0, 3, 0]
    assert finish(scheduler, array).state == AppState.FAILED


def test_an_element_starts_when_another_one_has_ended(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = f"echo begin >> {log}; sleep 0.05; echo end >> {log}"
    app_ids = submit(scheduler, [script] * 6, 2)
    for app_id in app_ids:
        finish(scheduler, app_id)
    running = most = 0
    for line in log.read_text().split():
        running += 1 if line == "begin" else -1
        most = max(most, running)
    assert most == 2


def test_a_waiting_element_is_pending_and_can_be_cancelled(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    scripts = [f"until [ -e {go} ]; do sleep 0.01; done", f"touch {ran}", "true"]
    app_ids = submit(scheduler, scripts, 1, detach=True)
    waiting = scheduler.describe(app_ids[1])
    assert (waiting.state, waiting.msg) == (
        AppState.PENDING,
        "waits until fewer than 1 elements of the array run",
    )
    scheduler.cancel(app_ids[1])
    assert scheduler.describe(app_ids[1]).state == AppState.CANCELLED
    go.touch()
    found = [finish(scheduler, app_id).state.name for app_id in app_ids]
    assert found == ["SUCCEEDED", "CANCELLED", "SUCCEEDED"]
    assert not ran.exists()


def test_a_running_element_is_cancelled_alone(scheduler: LocalScheduler) -> None:
    app_ids = submit(scheduler, ["sleep 600", "sleep 600; exit 0", "sleep 0.1"], 3, detach=True)
    scheduler.cancel(app_ids[1])
    assert scheduler.describe(app_ids[1]).state == AppState.CANCELLED
    finish(scheduler, app_ids[2])
    assert states(scheduler, app_ids)[0] == AppState.RUNNING
    scheduler.app_arrays.cancel(app_ids)
    assert [s.name for s in states(scheduler, app_ids)] == ["CANCELLED", "CANCELLED", "SUCCEEDED"]


def test_an_array_is_deleted_as_a_whole(scheduler: LocalScheduler, home: Path) -> None:
    app_ids = submit(scheduler, ["true", "true"])
    with pytest.raises(RequestError, match="are deleted together"):
        scheduler.delete(app_ids[0])
    with pytest.raises(RequestError, match="are deleted together"):
        scheduler.app_arrays.delete(app_ids[:1])
    scheduler.app_arrays.delete(app_ids)
    assert [scheduler.describe(app_id) for app_id in app_ids] == [None, None]
    assert os.listdir(home / "local" / "test") == []


def test_apps_that_are_not_alike_are_no_array(scheduler: LocalScheduler) -> None:
    apps = [AppDef("a", [sh("true")]), AppDef("b", [sh("true", num_replicas=2)])]
    infos = [scheduler.submit_dryrun(app, {}) for app in apps]
    submitted = scheduler.app_arrays.submit(infos, 1)
    assert "." not in next(submitted)
    with pytest.raises(CapacityError):
        next(submitted)


def test_neighbours_that_are_alike_become_an_array(scheduler: LocalScheduler) -> None:
    scripts = ["exit 0", "exit 1", "exit 2", "exit 3"]
    apps = [AppDef(f"job-{k}", [sh(script)]) for k, script in enumerate(scripts)]
    apps[3].metadata = {"owner": "other"}
    infos = [scheduler.submit_dryrun(app, {}) for app in apps]
    with pytest.raises(CapacityError, match="max_parallel=3"):
        list(scheduler.app_arrays.submit(iter(infos), 3))
    app_ids = list(scheduler.app_arrays.submit(iter(infos), 4))
    assert [app_id.count(".") for app_id in app_ids] == [1, 1, 1, 0]
    codes = [
        finish(scheduler, app_id).roles_statuses[0].replicas[0].exit_code for app_id in app_ids
    ]
    assert codes == [0, 1, 2, 3]


def test_the_dry_runs_of_an_array_need_not_be_in_memory_together(
    scheduler: LocalScheduler,
) -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    def dry_runs() -> Iterator[AppDryRunInfo[Any]]:
        nonlocal most
        for number in range(50):
            info = scheduler.submit_dryrun(AppDef(f"job-{number}", [sh(f"exit {number}")]), {})
            alive.append(weakref.ref(info))
            yield info
            del info
            most = max(most, sum(ref() is not None for ref in alive))

    app_ids = list(scheduler.app_arrays.submit(dry_runs(), 2))
    assert len(app_ids) == 50
    assert most <= 3


def test_an_element_whose_program_does_not_exist_fails_alone(scheduler: LocalScheduler) -> None:
    infos = []
    for script in ("true", "true"):
        app = AppDef("job", [sh(script)])
        app.roles[0].entrypoint = "no-such-program"
        infos.append(scheduler.submit_dryrun(app, {}))
    for app_id in scheduler.app_arrays.submit(infos, 1):
        found = finish(scheduler, app_id)
        assert found.state == AppState.FAILED
        assert "cannot run 'no-such-program'" in found.msg


def test_a_failed_element_is_restarted_alone(scheduler: LocalScheduler, tmp_path: Path) -> None:
    infos = []
    for i in range(3):
        script = f"echo >> {tmp_path}/{i}; exit $TORCHX_RESTART_COUNT" if i else "exit 1"
        app = AppDef(f"job-{i}", [sh(script, max_retries=1)])
        infos.append(scheduler.submit_dryrun(app, {}))
    app_ids = list(scheduler.app_arrays.submit(infos, 1))
    found = [finish(scheduler, app_id) for app_id in app_ids]
    assert [app.state.name for app in found] == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert [app.num_restarts for app in found] == [1, 0, 0]


def test_processes_that_an_element_has_left_end_with_it(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    app_ids = submit(scheduler, [f"sleep 600 & echo $! > {pids}", "sleep 600"], detach=True)
    finish(scheduler, app_ids[0])
    (pid,) = read_pids(pids)
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    scheduler.app_arrays.cancel(app_ids)


def test_the_elements_of_a_killed_supervisor_keep_their_outcomes(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    app_ids = submit(scheduler, ["true", "exit 3", "sleep 600", "true"], 2, detach=True)
    for app_id in app_ids[:2]:
        finish(scheduler, app_id)
    array = scheduler._stored(app_ids[0].rpartition(".")[0])
    os.kill(array.refresh().supervisor.pid, signal.SIGKILL)
    found = [finish(scheduler, app_id).state.name for app_id in app_ids]
    assert found[:3] == ["SUCCEEDED", "FAILED", "CANCELLED"]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Describe two GPUs whose devices are files; return code that does so in another process."""
    for minor in (0, 1):
        folder = tmp_path / "proc" / f"0000:0{minor}:00.0"
        folder.mkdir(parents=True)
        text = f"Model: \t\t fake\nGPU UUID: \t GPU-{minor}{minor}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
        (tmp_path / f"nvidia{minor}").touch()
    values = {"_DESCRIPTIONS": str(tmp_path / "proc/*/information"), "_DEVICES": str(tmp_path)}
    for name, value in values.items():
        monkeypatch.setattr(f"torchx_sched_local.cuda.{name}", value)
    monkeypatch.setattr(LocalScheduler, "_cuda_device_count", lambda self: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return f"import torchx_sched_local.cuda as cuda\nvars(cuda).update({values!r})\n"


def gpu_app(script: str, replicas: int = 1) -> AppDef:
    role = sh(script, num_replicas=replicas)
    role.resource = Resource(cpu=1, gpu=1, memMB=1)
    return AppDef("gpu", [role])


def test_a_gpu_belongs_to_one_job_at_a_time(
    scheduler: LocalScheduler, two_gpus: str, tmp_path: Path, launcher: Launcher
) -> None:
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1])\nfcntl.flock(file, 2)\nprint(1, flush=True)\n"
    )
    other = launcher(f"{code}import time; time.sleep(600)\n", tmp_path / "nvidia0")
    other.stdout.readline()
    cfg = {"auto_set_cuda_visible_devices": True}
    one = scheduler.schedule(
        scheduler.submit_dryrun(gpu_app("echo $CUDA_VISIBLE_DEVICES; sleep 600"), cfg)
    )
    wait_for(lambda: os.path.getsize(_log(scheduler, one)))
    assert Path(_log(scheduler, one)).read_text() == "1\n"
    folder = Path(scheduler.describe_native(one).request.log_dir)
    assert '["gpus",0,0,["GPU-11"],' in (folder / ".torchx/journal").read_text().replace(" ", "")
    both = scheduler.schedule(
        scheduler.submit_dryrun(gpu_app("echo $CUDA_VISIBLE_DEVICES", 2), cfg)
    )
    for reader in (scheduler, create_scheduler("other")):
        found = reader.describe(both)
        assert (found.state, found.msg) == (
            AppState.PENDING,
            "waits for GPUs that other jobs use",
        )
    other.kill()
    scheduler.cancel(one)
    assert finish(scheduler, both).state == AppState.SUCCEEDED
    assert [lines(scheduler, both, k=k) for k in range(2)] == [["0\n"], ["1\n"]]


def test_a_job_that_waits_for_gpus_is_cancelled_by_another_scheduler(
    scheduler: LocalScheduler, two_gpus: str
) -> None:
    cfg = {"auto_set_cuda_visible_devices": True}
    first = scheduler.schedule(scheduler.submit_dryrun(gpu_app("sleep 600", 2), cfg))
    waiting = scheduler.schedule(scheduler.submit_dryrun(gpu_app("true", 2), cfg))
    assert scheduler.describe(waiting).state == AppState.PENDING
    create_scheduler("other").cancel(waiting)
    assert scheduler.describe(waiting).state == AppState.CANCELLED
    assert scheduler.describe(first).state == AppState.RUNNING


def test_a_job_that_cannot_start_releases_its_gpus(
    scheduler: LocalScheduler, two_gpus: str
) -> None:
    cfg = {"auto_set_cuda_visible_devices": True}
    app = gpu_app("true", 2)
    app.roles[0].entrypoint = "no-such-program"
    with pytest.raises(RequestError, match="cannot run 'no-such-program'"):
        scheduler.schedule(scheduler.submit_dryrun(app, cfg))
    later = scheduler.schedule(scheduler.submit_dryrun(gpu_app("true", 2), cfg))
    assert finish(scheduler, later).state == AppState.SUCCEEDED


def _log(scheduler: LocalScheduler, app_id: str) -> str:
    return scheduler.describe_native(app_id).request.role_params["main"][0].stdout


def test_an_element_that_cannot_start_releases_its_gpus(
    scheduler: LocalScheduler, two_gpus: str
) -> None:
    too_long = "x" * (1 << 18)  # Linux refuses an argument of this length
    infos = [
        scheduler.submit_dryrun(gpu_app(script), {"auto_set_cuda_visible_devices": True})
        for script in (too_long, too_long, "true")
    ]
    ids = list(scheduler.app_arrays.submit(infos))
    states = [finish(scheduler, app_id).state for app_id in ids]
    assert states == [AppState.FAILED, AppState.FAILED, AppState.SUCCEEDED]


def test_elements_wait_for_gpus_one_by_one(
    scheduler: LocalScheduler, two_gpus: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00,1")
    # Two elements run at a time: each waits until the other one of its pair has started.
    script = (
        "echo $CUDA_VISIBLE_DEVICES; touch {folder}/$$;"
        " until [ $(ls {folder} | wc -l) -ge {count} ]; do sleep 0.01; done"
    )
    (tmp_path / "started").mkdir()
    infos = [
        scheduler.submit_dryrun(
            gpu_app(script.format(folder=tmp_path / "started", count=count)),
            {"auto_set_cuda_visible_devices": True},
        )
        for count in (2, 2, 4, 4)
    ]
    app_ids = list(scheduler.app_arrays.submit(infos, 4))
    for app_id in app_ids:
        assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    shown = [lines(scheduler, app_id)[0] for app_id in app_ids]
    assert sorted(shown) == ["1\n", "1\n", "GPU-00\n", "GPU-00\n"]


def test_elements_that_end_while_their_supervisor_is_killed_have_their_exit_codes(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    go = tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.01; done"
    scripts = [f"echo $$ >> {pids}; {wait}; exit {code}" for code in (0, 3)]
    app_ids = submit(scheduler, scripts, detach=True)
    started = read_pids(pids, 2)
    supervisor = scheduler._stored(app_ids[0].rpartition(".")[0]).refresh().supervisor.pid
    os.kill(supervisor, signal.SIGSTOP)
    go.touch()
    wait_for(lambda: not any(map(is_running, started)))
    os.kill(supervisor, signal.SIGKILL)
    found = [finish(scheduler, app_id) for app_id in app_ids]
    assert [app.state.name for app in found] == ["SUCCEEDED", "FAILED"]
    assert found[1].roles_statuses[0].replicas[0].exit_code == 3


def test_an_element_that_the_machine_cannot_start_now_starts_later(
    scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, calls = LocalScheduler.run_local_job, []

    def fail_twice(self: LocalScheduler, *args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) in (2, 3):
            raise OSError(11, "Resource temporarily unavailable")
        return start(self, *args, **kwargs)

    monkeypatch.setattr(LocalScheduler, "run_local_job", fail_twice)
    app_ids = submit(scheduler, ["echo one", "echo two"], 1)
    wait_for(lambda: len(calls) > 2)
    assert "Resource temporarily unavailable" in scheduler.describe(app_ids[1]).msg or calls[3:]
    for app_id, line in zip(app_ids, ["one\n", "two\n"], strict=True):
        assert finish(scheduler, app_id).state == AppState.SUCCEEDED
        assert lines(scheduler, app_id) == [line]
