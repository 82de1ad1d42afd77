"""Tests of the names and methods that subclasses of the scheduler rely on."""

from __future__ import annotations

import os
import pprint
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, is_running, lines, sh, submit

import torchx_sched_local.scheduler as module
from patience import wait_for
from torchx_kit.errors import UnknownReplicaError
from torchx_sched_local.scheduler import (
    CWDImageProvider,
    LocalOpts,
    LocalScheduler,
    PopenRequest,
    ReplicaParam,
    _LocalAppDef,
    _LocalReplica,
)
from torchx_specs import AppDef, AppDryRunInfo, AppState, Role, runopts
from torchx_specs.schedulers import DescribeAppResponse
from torchx_specs.schedulers.logs import LogQuery


def test_module_has_the_names_that_clients_use() -> None:
    for name in [
        "LocalScheduler",
        "LocalOpts",
        "Opts",
        "ImageProvider",
        "CWDImageProvider",
        "LocalDirectoryImageProvider",
        "LogIterator",
        "PopenRequest",
        "ReplicaParam",
        "PopenProtocol",
        "AppId",
        "AppName",
        "RoleName",
        "STDOUT_LOG",
        "STDERR_LOG",
        "COMBINED_LOG",
        "NA",
        "ENV_CUDA_VISIBLE_DEVICES",
        "SignalException",
        "_join_PATH",
        "create_scheduler",
        "_LocalAppDef",
        "_LocalReplica",
    ]:
        assert hasattr(module, name), name
    assert (module.STDOUT_LOG, module.STDERR_LOG, module.COMBINED_LOG, module.NA) == (
        "stdout.log",
        "stderr.log",
        "combined.log",
        "<N/A>",
    )
    error = module.SignalException("x", 15)  # type: ignore[arg-type]
    assert error.sigval == 15


class Persistent(LocalScheduler):
    """Skips ``__init__`` and sets all attributes itself, as clients do."""

    def __init__(self, session_name: str) -> None:
        self.backend = "local"
        self.session_name = session_name
        self._image_provider_class = CWDImageProvider
        self._cache_size = 100
        self._extra_paths: list[str] = []
        self._apps: dict[str, _LocalAppDef] = {}
        self._base_log_dir = None
        self._created_tmp_log_dir = False
        self.saved: dict[str, dict[str, Any]] = {}

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("job_dir", type_=str, help="where", default=None)
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[PopenRequest]:
        request = self._to_popen_request(
            app,
            {
                "prepend_cwd": False,
                "auto_set_cuda_visible_devices": False,
                "log_dir": cfg["job_dir"],
            },
        )
        return AppDryRunInfo(request, lambda p: pprint.pformat(asdict(p), indent=2, width=80))

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        app_id = super().schedule(dryrun_info=dryrun_info)
        app = self._apps[app_id]
        self.saved[app_id] = {"log_dir": app.log_dir, "roles": list(app.role_replicas)}
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        found = super().describe(app_id)
        if found is not None:
            return found
        if app_id not in self.saved:
            return None
        app = _LocalAppDef(id=app_id, log_dir=self.saved[app_id]["log_dir"])
        app.set_state(AppState.SUCCEEDED)
        self._apps[app_id] = app
        return super().describe(app_id)

    def _cancel_existing(self, app_id: str) -> None:
        app = self._apps[app_id]
        app.close()
        app.state = AppState.CANCELLED

    def close(self) -> None:
        for app in self._apps.values():
            app.kill()
        if self._base_log_dir and self._created_tmp_log_dir:
            raise AssertionError("there is nothing to remove")


class NotAMapping:
    """Stands for an object that some clients use as ``cfg`` instead of a mapping."""


@pytest.mark.parametrize("odd_cfg", [False, True])
def test_subclass_that_skips_init(tmp_path: Path, odd_cfg: bool) -> None:
    scheduler = Persistent("mine")
    app = AppDef("app", [sh("echo hi; echo err >&2; exit ${replica_id}", num_replicas=2)])
    info = scheduler.submit_dryrun(app, {"job_dir": str(tmp_path)})
    assert "'role_params'" in str(info)
    if odd_cfg:
        info._cfg = NotAMapping()  # type: ignore[assignment]
        info._app = None
    app_id = scheduler.schedule(info)
    assert finish(scheduler, app_id).state == AppState.FAILED
    assert (tmp_path / "mine" / app_id / "main" / "1" / "stderr.log").read_text() == "err\n"
    assert sorted(lines(scheduler, app_id)) == ["err\n", "hi\n"]
    assert lines(scheduler, app_id, should_tail=True)
    assert len(scheduler._apps[app_id].role_replicas["main"]) == 2
    assert scheduler._apps[app_id].state == AppState.FAILED
    assert repr(scheduler._apps[app_id]).startswith(f"{{app_id:{app_id}, state:FAILED, pid_map:")
    scheduler.close()


def test_subclass_that_skips_init_cancels(tmp_path: Path) -> None:
    scheduler = Persistent("mine")
    info = scheduler.submit_dryrun(AppDef("app", [sh("sleep 5555")]), {"job_dir": str(tmp_path)})
    app_id = scheduler.schedule(info)
    [replica] = scheduler._apps[app_id].role_replicas["main"]
    assert replica.is_alive()
    scheduler.cancel(app_id)
    assert not replica.is_alive()
    assert scheduler.describe(app_id).state == AppState.CANCELLED
    scheduler.close()


def test_subclass_that_skips_init_may_know_other_apps(tmp_path: Path) -> None:
    scheduler = Persistent("mine")
    scheduler.saved["old-app"] = {"log_dir": str(tmp_path)}
    found = scheduler.describe("old-app")
    assert found is not None
    assert found.state == AppState.SUCCEEDED
    assert found.ui_url == f"file://{tmp_path}"
    scheduler.close()


class OwnWay(LocalScheduler):
    """Replaces ``schedule`` and adds its apps to ``_apps``, without a supervision."""

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        request = dryrun_info.request
        os.makedirs(request.log_dir)
        app = _LocalAppDef(request.app_id, request.log_dir)
        for role, params in request.role_params.items():
            for k, param in enumerate(params):
                os.makedirs(request.role_log_dirs[role][k])
                app.add_replica(role, self._popen(role, k, param))
        self._apps[request.app_id] = app
        return request.app_id


@pytest.fixture
def own_way() -> Any:
    scheduler = OwnWay("mine", CWDImageProvider)
    yield scheduler
    scheduler.close()


def test_app_without_a_supervision_runs(own_way: OwnWay, tmp_path: Path) -> None:
    script = f"echo out; echo err >&2; until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"
    app_id = submit(own_way, sh(script))
    assert own_way.describe(app_id).state == AppState.RUNNING
    wait_for(lambda: lines(own_way, app_id))
    (tmp_path / "go").touch()
    own_way.wait(app_id, 20)
    found = own_way.describe(app_id)
    assert found.state == AppState.FAILED
    assert sorted(lines(own_way, app_id)) == ["err\n", "out\n"]
    assert '"exitcode": 3' in Path(own_way._apps[app_id].log_dir, "SUCCESS").read_text()
    with pytest.raises(UnknownReplicaError, match="no role 'x'"):
        lines(own_way, app_id, "x")


def test_app_without_a_supervision_is_followed_and_cancelled(own_way: OwnWay) -> None:
    app_id = submit(own_way, sh("echo up; sleep 5555 & sleep 5555"))
    result: list[str] = []
    thread = threading.Thread(
        target=lambda: result.extend(own_way.log_iter(app_id, "main", should_tail=True))
    )
    thread.start()
    wait_for(lambda: result)
    pid = own_way._apps[app_id].role_replicas["main"][0].proc.pid
    own_way.cancel(app_id)
    thread.join(120)
    assert result == ["up\n"]
    assert not is_running(pid)
    assert own_way.describe(app_id).state == AppState.CANCELLED


@pytest.mark.parametrize("should_tail", [False, True])
def test_many_logs_of_an_app_without_a_supervision(own_way: OwnWay, should_tail: bool) -> None:
    app_id = submit(own_way, sh("echo ${replica_id}", num_replicas=2))
    own_way.wait(app_id, 20)
    own_way.describe(app_id)  # notices the end of the app, and merges its streams
    replicas = [("main", 0), ("main", 1)]
    blocks = own_way.app_logs.read_many(app_id, replicas, LogQuery(should_tail=should_tail))
    found = {replica: list(block) for replica, block in blocks}
    assert found == {("main", 0): ["0\n"], ("main", 1): ["1\n"]}


def test_many_logs_come_from_the_log_iter_of_a_subclass() -> None:
    class Mine(LocalScheduler):
        def log_iter(self, app_id, role_name, k=0, *args, **kwargs):
            return [f"{app_id} {role_name} {k}\n"]

    logs = Mine("s", CWDImageProvider).app_logs
    [(replica, block)] = logs.read_many("app", [("main", 3)], LogQuery())
    assert (replica, list(block)) == (("main", 3), ["app main 3\n"])


def test_apps_of_a_subclass_always_live_in_the_client() -> None:
    assert LocalScheduler("s", CWDImageProvider).lives_in_client({}) is True
    assert LocalScheduler("s", CWDImageProvider).lives_in_client({"detach": False}) is True
    assert LocalScheduler("s", CWDImageProvider).lives_in_client({"detach": True}) is False
    assert OwnWay("s", CWDImageProvider).lives_in_client({"detach": True}) is True


def test_structured_error_of_an_app_without_a_supervision(own_way: OwnWay) -> None:
    app_id = submit(own_way, sh('echo \'{"a":  1}\' > "$TORCHELASTIC_ERROR_FILE"; exit 1'))
    own_way.wait(app_id, 20)
    assert own_way.describe(app_id).structured_error_msg == '{"a":1}'


def test_subclass_may_replace_how_a_process_is_started(tmp_path: Path) -> None:
    calls: list[tuple[list[str], str | None]] = []

    class Mine(LocalScheduler):
        def run_local_job(self, args, env, stdout, stderr, cwd=None):
            calls.append((args, cwd))
            return super().run_local_job(
                ["env", "ADDED=1", *args], env=env, stdout=stdout, stderr=stderr, cwd=cwd
            )

        def _get_replica_env(self, replica_params: ReplicaParam) -> dict[str, str]:
            return {**super()._get_replica_env(replica_params), "MORE": "2"}

        def _get_app_log_dir(self, app_id: str, cfg: Mapping[str, Any]) -> str:
            return str(tmp_path / "mine" / app_id)

    scheduler = Mine("s", CWDImageProvider)
    try:
        role = sh("echo $ADDED $MORE; [ $TORCHX_RESTART_COUNT = 1 ]", max_retries=1)
        app_id = submit(scheduler, role)
        assert finish(scheduler, app_id).state == AppState.SUCCEEDED
        assert lines(scheduler, app_id) == ["1 2\n", "1 2\n"]
        assert len(calls) == 2
        assert calls[0][1] == os.getcwd()
        assert (tmp_path / "mine" / app_id / "SUCCESS").exists()
    finally:
        scheduler.close()


class FakeProcess:
    """A process that does not run on this machine."""

    def __init__(self, exit_code: int | None, pid: object) -> None:
        self.pid = pid
        self.returncode = exit_code
        self._ended = threading.Event()
        if exit_code is not None:
            self._ended.set()

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("fake", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9
        self._ended.set()


# No process with one of these pids may get a signal. Among them are init, this process and the
# parent of this process.
@pytest.mark.parametrize(
    "pid",
    [
        *("job-17", 0, 1, -1, True),
        pytest.param(os.getpid(), id="this-process"),
        pytest.param(os.getppid(), id="parent-process"),
    ],
)
@pytest.mark.parametrize("exit_code", [0, 5, None])
def test_subclass_may_start_something_else_than_a_process(
    exit_code: int | None, pid: object
) -> None:
    class Mine(LocalScheduler):
        def run_local_job(self, args, env, stdout, stderr, cwd=None):
            return FakeProcess(exit_code, pid)

    scheduler = Mine("s", CWDImageProvider)
    try:
        app_id = submit(scheduler, Role("main", image="", entrypoint="x", num_replicas=2))
        if exit_code is None:
            assert scheduler.describe(app_id).state == AppState.RUNNING
            scheduler.cancel(app_id)
            expected = AppState.CANCELLED
        else:
            expected = AppState.FAILED if exit_code else AppState.SUCCEEDED
        assert finish(scheduler, app_id).state == expected
        scheduler.delete(submit(scheduler, Role("main", image="", entrypoint="x")))
        assert [app.app_id for app in scheduler.list()] == [app_id]
    finally:
        scheduler.close()


def test_options_class_is_a_mapping() -> None:
    opts = LocalOpts(log_dir="/x")
    assert opts["log_dir"] == "/x"
    assert opts.get("prepend_cwd") is False
    assert dict(opts)["detach"] is False


def test_to_popen_request_accepts_a_plain_dict() -> None:
    scheduler = LocalScheduler("s", CWDImageProvider)
    request = scheduler._to_popen_request(AppDef("app", [sh("true")]), {})
    assert isinstance(request, PopenRequest)
    request = scheduler._to_popen_request(AppDef("app", [sh("true")]), {"log_dir": "/x"})
    assert request.log_dir.startswith("/x/s/app-")


def test_replica_without_a_scheduler(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "5555"], start_new_session=True)
    replica = _LocalReplica("main", 0, process, None, None, None, str(tmp_path / "error.json"))
    assert replica.is_alive()
    assert not replica.failed()
    replica.terminate()
    process.wait(120)
    assert replica.failed()
    app = _LocalAppDef("app", str(tmp_path))
    app.add_replica("main", replica)
    assert app.state == AppState.PENDING
    assert app.last_updated == -1
    assert app.get_structured_error_msg() == "<NONE>"
    app.set_state(AppState.FAILED)
    app.close()
    assert app.last_updated > 0
    assert (tmp_path / "SUCCESS").exists()
