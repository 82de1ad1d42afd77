"""Tests of undocumented behaviour on which clients rely; ``nox -s clients`` runs the clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from patience import wait_for
from torchx.cli.cmd_log import _prefix_line, find_role_replicas, validate
from torchx.components.dist import _args_join, _noquote, ddp, get_role_name, parse_nnodes
from torchx.components.structured_arg import StructuredJArgument, StructuredNameArgument
from torchx.runner import Runner, get_runner
from torchx.runner.config import apply
from torchx.runner.events import log_event
from torchx.schedulers.api import DescribeAppResponse, Stream
from torchx.schedulers.docker_scheduler import DockerScheduler, _to_str
from torchx.schedulers.local_scheduler import (
    COMBINED_LOG,
    CWDImageProvider,
    LocalOpts,
    LocalScheduler,
    LogIterator,
    PopenRequest,
    _LocalAppDef,
)
from torchx.schedulers.slurm_scheduler import SLURM_STATES, SlurmScheduler
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    Resource,
    Role,
    is_terminal,
    macros,
    make_app_handle,
    parse_app_handle,
)
from torchx.util.types import none_throws


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def app(script: str = "echo hi", name: str = "job", **fields: Any) -> AppDef:
    resource = Resource(cpu=1, gpu=0, memMB=1)
    role = Role("main", "", entrypoint="sh", args=["-c", script], resource=resource, **fields)
    return AppDef(name, [role])


class Persistent(LocalScheduler):
    """A subclass like NeMo-Run's: it does not call ``super().__init__()``, nor check options."""

    def __init__(self, session_name: str) -> None:
        self.backend = "local"
        self.session_name = session_name
        self._apps: dict[str, _LocalAppDef] = {}
        self._image_provider_class = CWDImageProvider
        self._cache_size = 100
        self._extra_paths: list[str] = []
        self._base_log_dir: str | None = None
        self._created_tmp_log_dir = False

    def submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[PopenRequest]:
        info = self._submit_dryrun(app, cfg)
        for role in app.roles:
            info = role.pre_proc(self.backend, info)
        info._app = app
        return info

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[PopenRequest]:
        return AppDryRunInfo(self._to_popen_request(app, {"log_dir": cfg, "other": None}), repr)


def wait_for_end(describe: Any) -> DescribeAppResponse:
    wait_for(lambda: is_terminal(none_throws(describe()).state))
    description: DescribeAppResponse = none_throws(describe())
    return description


@pytest.fixture
def persistent() -> Iterator[Persistent]:
    scheduler = Persistent("nemo")
    yield scheduler
    scheduler.close()


def test_a_local_scheduler_subclass_may_skip_the_constructor(
    persistent: Persistent, tmp_path: Path
) -> None:
    info = persistent.submit_dryrun(app("echo out; echo err >&2"), str(tmp_path / "logs"))
    app_id = persistent.schedule(info)
    assert app_id in persistent._apps
    response = wait_for_end(lambda: persistent.describe(app_id))
    assert response.state == AppState.SUCCEEDED
    log = tmp_path / "logs" / "nemo" / app_id / "main" / "0" / COMBINED_LOG
    assert persistent._apps[app_id].log_dir == str(log.parents[2])
    assert sorted(log.read_text().splitlines()) == ["err", "out"]
    lines = LogIterator(app_id, str(log), persistent)
    assert sorted(lines) in (["err\n", "out\n"], ["err", "out"])
    out = persistent.log_iter(app_id, "main", 0, streams=Stream.STDOUT)
    assert list(out) == ["out\n"]


def test_kill_ends_an_app_of_a_local_scheduler_subclass(
    persistent: Persistent, tmp_path: Path
) -> None:
    app_id = persistent.schedule(persistent.submit_dryrun(app("sleep 60"), str(tmp_path / "logs")))
    persistent._apps[app_id].kill()
    assert wait_for_end(lambda: persistent.describe(app_id)).state in (
        AppState.CANCELLED,
        AppState.FAILED,
    )


def test_an_app_object_may_be_created_directly() -> None:
    made = _LocalAppDef(id="x", log_dir="/logs")
    made.role_replicas["main"] = []
    made.set_state(AppState.SUCCEEDED)
    assert (made.id, made.log_dir, made.state) == ("x", "/logs", AppState.SUCCEEDED)
    assert list(made.role_replicas) == ["main"]


def test_a_log_iterator_subclass_may_override_constructor_and_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("a\nb\n")

    class CountingIterator(LogIterator):
        def __init__(self, app_id: str, log_file: str, scheduler: Any) -> None:
            self._app_id = app_id
            self._log_file = log_file
            self._log_fp = None
            self._scheduler = scheduler
            self._app_finished = False
            self.checks = 0

        def _check_finished(self) -> None:
            self.checks += 1
            self._app_finished = self.checks > 1

    iterator = CountingIterator("x", str(file), None)
    assert [line.rstrip("\n") for line in iterator] == ["a", "b"]
    assert iterator.checks > 0


class OverridingRunner(Runner):
    """A subclass like NeMo-Run's: it overrides ``dryrun``, and accepts any object as options."""

    def dryrun(self, app: AppDef, scheduler: str, cfg: Any = None, *args: Any) -> Any:
        with log_event("dryrun", scheduler) as ctx:
            backend = self._scheduler(scheduler)
            backend._validate(app, scheduler)
            info = backend.submit_dryrun(app, cfg)
            info._scheduler = scheduler
            ctx._torchx_event.app_image = none_throws(info._app).roles[0].image
            return info


def test_a_runner_subclass_may_override_dryrun(tmp_path: Path) -> None:
    made: list[dict[str, Any]] = []

    def create(session_name: str, **kwargs: Any) -> Persistent:
        made.append(kwargs)
        return Persistent(session_name)

    factories: Any = {"persistent": create}
    with OverridingRunner(
        "nemo", factories, {"c": {"a": "b"}}, scheduler_params={"experiment": 7}
    ) as runner:
        assert runner._name == "nemo"
        handle = runner.schedule(runner.dryrun(app(), "persistent", str(tmp_path / "logs")))
        assert parse_app_handle(handle)[:2] == ("persistent", "nemo")
        assert runner._apps[handle].name == "job"
        status = none_throws(runner.wait(handle, wait_interval=1))
        assert status.state == AppState.SUCCEEDED
        assert list(runner.log_lines(handle, "main")) == ["hi\n"]
    assert [kwargs["experiment"] for kwargs in made] == [7]


@pytest.mark.parametrize("create", ["slurm", "docker", "local", "lsf"])
def test_factories_ignore_unknown_keywords(create: str) -> None:
    import importlib

    module = importlib.import_module(f"torchx.schedulers.{create}_scheduler")
    scheduler = module.create_scheduler("session", experiment=object(), context_name="cli_run")
    assert scheduler.session_name == "session"
    scheduler.close()


def test_dryrun_info_has_private_attributes_of_older_releases() -> None:
    info: AppDryRunInfo[list[int]] = AppDryRunInfo([1], lambda request: f"<{request}>")
    info._app, info._cfg, info._scheduler = app(), {"a": 1}, "s"
    assert str(info) == "<[1]>"
    info._fmt = repr
    assert str(info) == "[1]"
    assert (none_throws(info.app).name, info.cfg) == ("job", {"a": 1})


def test_a_dry_run_sets_the_private_attributes_of_its_result() -> None:
    with get_runner() as runner:
        info = runner.dryrun(app(), "local_cwd", {"log_dir": "/x"})
    assert (none_throws(info._app).name, info._scheduler) == ("job", "local_cwd")
    assert dict(info._cfg)["log_dir"] == "/x"
    assert info._fmt(info.request) == str(info)


def test_states_have_an_order() -> None:
    assert AppState.SUBMITTED <= AppState.PENDING < AppState.RUNNING
    assert min([AppState.RUNNING, AppState.PENDING]) is AppState.PENDING
    assert (AppState.FAILED == 5, str(AppState.FAILED), repr(AppState.FAILED)) == (
        True,
        "FAILED",
        "FAILED (5)",
    )


def test_a_handle_may_have_an_empty_session() -> None:
    assert parse_app_handle("slurm:///name") == ("slurm", "", "name")
    assert make_app_handle("slurm", "", "name") == "slurm:///name"
    with Runner("") as runner:
        handle = runner.run(app(), "local_cwd")
        assert handle.startswith("local_cwd:///job-")
        assert none_throws(runner.wait(handle, wait_interval=1)).state == AppState.SUCCEEDED
        assert none_throws(runner.describe(handle)).roles[0].name == "main"


def test_the_image_macro_keeps_its_text() -> None:
    assert macros.img_root == "${img_root}"


def test_a_patch_of_a_method_at_the_older_path_takes_effect() -> None:
    submit = mock.patch(
        "torchx.schedulers.slurm_scheduler.SlurmScheduler.schedule", return_value="7"
    )
    image = Role("main", "", entrypoint="x", resource=Resource(1, 0, 1))
    with submit as submitted, get_runner() as runner:
        assert runner.run(AppDef("job", [image]), "slurm") == "slurm://torchx/7"
        assert submitted.call_count == 1
    with mock.patch("torchx.runner.Runner.status", return_value="patched"), get_runner() as runner:
        assert runner.status("slurm://torchx/7") == "patched"
    status = mock.patch("torchx.runner.api.Runner.cancel", side_effect=KeyError("patched"))
    with status, get_runner() as runner, pytest.raises(KeyError, match="patched"):
        runner.cancel("slurm://torchx/7")
    with mock.patch("torchx.schedulers.local_scheduler.LocalScheduler.describe") as described:
        described.return_value = DescribeAppResponse(app_id="x", state=AppState.FAILED)
        with get_runner() as runner:
            assert none_throws(runner.status("local_cwd://torchx/x")).state == AppState.FAILED


def test_colours_are_empty_without_a_terminal() -> None:
    code = "from torchx.cli.colors import ENDC, GREEN; print([ENDC, GREEN])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['', '']\n"


def test_the_log_command_has_helpers_of_older_releases() -> None:
    made = AppDef("a", [Role("x", "i", num_replicas=2), Role("y", "i")])
    assert find_role_replicas(made, None) == [("x", 0), ("x", 1), ("y", 0)]
    assert find_role_replicas(made, "y") == [("y", 0)]
    assert _prefix_line("x/0 ", "a\rb\nc") == "x/0 a\rx/0 b\nx/0 c"
    validate("local_cwd://session/app/role/0,1")
    with pytest.raises(SystemExit):
        validate("nonsense")


def test_schedulers_have_helpers_of_older_releases() -> None:
    assert _to_str(b"text") == _to_str("text") == "text"
    assert SLURM_STATES["COMPLETED"] == AppState.SUCCEEDED
    assert LocalOpts(log_dir="/x")["log_dir"] == "/x"
    container = mock.Mock(status="running")
    assert DockerScheduler("s")._get_app_state(container) == AppState.RUNNING
    assert SlurmScheduler("s").backend == "slurm"


def test_components_have_helpers_of_older_releases() -> None:
    # The expected values were recorded from torchx 0.7.0 and torchx-nightly 2026.10.26.
    assert parse_nnodes("1:2x8") == (1, 2, 8, "1:2")
    assert parse_nnodes("2") == (1, 1, 2, "1")
    assert _args_join(["a", "b c"]) == "a 'b c'"
    assert _args_join([_noquote("$X"), "b c"]) == "$X 'b c'"
    assert get_role_name("a/train.py", None) == "train"
    assert get_role_name(None, "pkg.train") == "train"
    assert str(StructuredJArgument.parse_from(h="gpu.small", j="2")) == "2x1"
    name = StructuredNameArgument.parse_from("exp/", m="pkg.train")
    assert (name.experiment_name, name.run_name) == ("exp", "train")
    assert ddp(script="train.py", j="2x4").roles[0].num_replicas == 2


def test_apply_reads_the_configuration_of_given_folders(tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text("[slurm]\npartition = gpu\ntime = 1\n")
    cfg: Any = {"time": "2"}
    apply("slurm", cfg, dirs=[str(tmp_path)])
    assert cfg == {"time": "2", "partition": "gpu"}


def test_a_component_takes_defaults_from_the_configuration(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from torchx.cli.main import main

    Path("c.py").write_text(
        "from torchx.specs import *\n"
        "def go(*, n: int = 1) -> AppDef:\n"
        "    role = Role('r', '', entrypoint='echo', args=[str(n)], resource=Resource(1, 0, 1))\n"
        "    return AppDef('a', [role])\n"
    )
    Path(".torchxconfig").write_text("[cli:run]\ncomponent = c.py:go\nscheduler = local_cwd\n")
    with mock.patch.dict(os.environ, {"TORCHXCONFIG": os.path.abspath(".torchxconfig")}):
        main(["run", "--", "--n", "7"])
    shown = capfd.readouterr()
    assert shown.out.startswith("local_cwd://")
    assert "r/0 7" in shown.err
