"""Fixtures: a scheduler whose apps are in memory, and a separate environment for each test."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from torchx_runner import Runner, session_id
from torchx_runner.config import files as config_files
from torchx_runner.events import api as events
from torchx_specs import AppDef, AppDryRunInfo, AppState, CfgVal, Resource, Role, runopts
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.plugins.records import Origin
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler, Stream


class FakeScheduler(Scheduler[Mapping[str, CfgVal]]):
    """Runs nothing: an app is RUNNING until a test sets another state. ``calls`` has most calls."""

    def __init__(self, session_name: str, **params: object) -> None:
        super().__init__("fake", session_name)
        self.params = params
        self.calls: list[tuple[Any, ...]] = []
        self.states: dict[str, AppState | list[AppState]] = {}
        self.log = ["one\n", "two\n"]
        self.closed = 0

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, default="default", help="name of the queue")
        opts.add("priority", type_=int, default=None, help="priority of the job")
        opts.add("job_tags", type_=list[str], default=None, help="tags of the job")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[Any]:
        self.calls.append(("submit_dryrun", app.name, dict(cfg)))
        return AppDryRunInfo({"app": app.name, "queue": cfg["queue"]}, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        self.calls.append(("schedule", dryrun_info.request))
        app_id = f"app{len(self.states) + 1}"
        self.states[app_id] = AppState.RUNNING
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        state = self.states.get(app_id)
        if isinstance(state, list):
            state = state.pop(0) if len(state) > 1 else state[0]
        if state is None:
            return None
        return DescribeAppResponse(
            app_id=app_id,
            state=state,
            num_restarts=2,
            msg="as told",
            ui_url="http://ui",
            metadata={"m": "1"},
            roles=[Role("seen", "by scheduler")],
        )

    def describe_native(self, app_id: str) -> AppDryRunInfo[Any] | None:
        return AppDryRunInfo({"native": app_id}, repr) if app_id in self.states else None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        self.calls.append(("list", cfg))
        return [ListAppResponse(app_id, AppState.RUNNING) for app_id in self.states]

    def _cancel_existing(self, app_id: str) -> None:
        self.calls.append(("cancel", app_id))

    def _delete_existing(self, app_id: str) -> None:
        self.calls.append(("delete", app_id))
        del self.states[app_id]

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: Any = None,
        until: Any = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        self.calls.append(
            ("log_iter", app_id, role_name, k, regex, since, until, should_tail, streams)
        )
        return self.log

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use an empty home and working directory, no TorchX variables, and no installed plugins."""
    for name in list(os.environ):
        if name.startswith("TORCHX"):
            monkeypatch.delenv(name)
    for folder in ("home", "cwd"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(session_id, "CURRENT_SESSION_ID", None)
    events._warn_once.cache_clear()
    monkeypatch.setattr(config_files, "_cache", {})
    set_manager(PluginManager(discover=False))
    yield
    set_manager(None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    return tmp_path / "cwd"


class Plugins:
    """Registers hook implementations, each as a separate distribution."""

    def __init__(self) -> None:
        self.manager = PluginManager(discover=False)
        set_manager(self.manager)

    def add(
        self, hook: str, *records: Any, distribution: str = "acme", tryfirst: bool = False
    ) -> None:
        from torchx_specs.hookspecs import hookimpl

        @hookimpl(tryfirst=tryfirst, specname=hook)
        def implementation() -> Any:
            return records

        plugin = type("Plugin", (), {"implementation": staticmethod(implementation)})()
        origin = Origin(distribution, "1.0", distribution)
        self.manager.register(plugin, f"{distribution}:{hook}:{len(self.manager.problems)}", origin)


@pytest.fixture
def plugins() -> Plugins:
    return Plugins()


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler("test")


@pytest.fixture
def runner(scheduler: FakeScheduler) -> Runner:
    return Runner("test", {"fake": lambda session_name, **params: scheduler})


@pytest.fixture
def app() -> AppDef:
    return make_app()


def make_app(*roles: Role, name: str = "job") -> AppDef:
    return AppDef(name, list(roles) or [make_role()])


def make_role(name: str = "main", **changes: Any) -> Role:
    fields: dict[str, Any] = {
        "image": "img",
        "entrypoint": "echo",
        "args": ["hi"],
        "resource": Resource(cpu=1, gpu=0, memMB=64),
    }
    return Role(name, **{**fields, **changes})


@pytest.fixture
def new_role() -> Any:
    return make_role


@pytest.fixture
def fake_scheduler_class() -> type[FakeScheduler]:
    return FakeScheduler
