"""Fixtures: the command in this process, with a scheduler whose apps are in memory."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from torchx_specs import AppDef, AppDryRunInfo, AppState, runopts
from torchx_specs.hookspecs import CommandPlugin, SchedulerPlugin, hookimpl
from torchx_specs.model.status import ReplicaStatus, RoleStatus
from torchx_specs.plugins.manager import PluginManager, get_manager, set_manager
from torchx_specs.plugins.records import Origin
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx_specs.schedulers.features import SchedulerFeatures


@dataclass
class FakeApp:
    """An app of the fake scheduler."""

    app: AppDef
    cfg: dict[str, Any] = field(default_factory=dict)
    states: list[AppState] = field(default_factory=lambda: [AppState.SUCCEEDED])
    logs: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    cancelled: bool = False
    times: dict[str, datetime] = field(default_factory=dict)
    exit_code: int | None = None
    roles: list[RoleStatus] | None = None
    msg: str = "<NONE>"


@dataclass
class FakeRequest:
    name: str
    size: int


class FakeScheduler(Scheduler[Mapping[str, Any]]):
    """Keeps its apps in memory; each query of a status moves the app to its next state."""

    features = SchedulerFeatures(logs=True, client_jobs=True)

    def __init__(self, session_name: str, apps: dict[str, FakeApp], **params: Any) -> None:
        super().__init__("fake", session_name)
        self.apps = apps
        self.in_client = False

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, help="name of the queue", default=None)
        opts.add("tags", type_=list[str], help="tags of the job", default=None)
        opts.add("project", type_=str, help="name of the project", default="none")
        opts.add("end", type_=str, help="the state at the end", default="SUCCEEDED")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[FakeRequest]:
        return AppDryRunInfo(FakeRequest(app.name, len(app.roles)), lambda r: f"submit {r.name}")

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app = dryrun_info.app
        assert app is not None
        app_id = f"{app.name}-{len(self.apps)}"
        end = AppState[str(dryrun_info.cfg["end"])]
        logs = {
            (r.name, i): [f"hello from {i}\n"] for r in app.roles for i in range(r.num_replicas)
        }
        self.apps[app_id] = FakeApp(
            app, dict(dryrun_info.cfg), [AppState.PENDING, AppState.RUNNING, end], logs
        )
        return app_id

    def lives_in_client(self, cfg: Mapping[str, Any]) -> bool:
        return self.in_client

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        fake = self.apps.get(app_id)
        if fake is None:
            return None
        state = fake.states.pop(0) if len(fake.states) > 1 else fake.states[0]
        if fake.cancelled:
            state = AppState.CANCELLED
        roles = [
            RoleStatus(
                r.name,
                [ReplicaStatus(i, state, r.name, "localhost") for i in range(r.num_replicas)],
            )
            for r in fake.app.roles
        ]
        return DescribeAppResponse(
            app_id,
            state,
            num_restarts=0,
            msg=fake.msg,
            roles_statuses=roles if fake.roles is None else fake.roles,
            roles=fake.app.roles,
            **fake.times,
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return [
            ListAppResponse(
                app_id,
                fake.states[0],
                name=fake.app.name,
                exit_code=fake.exit_code,
                **fake.times,
            )
            for app_id, fake in self.apps.items()
        ]

    def _cancel_existing(self, app_id: str) -> None:
        self.apps[app_id].cancelled = True

    def _delete_existing(self, app_id: str) -> None:
        del self.apps[app_id]

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        fake = self.apps[app_id]
        asked = {"regex": regex, "since": since, "until": until, "tail": should_tail}
        fake.asked.append({**asked, "streams": streams, "replica": (role_name, k)})
        return iter(fake.logs[role_name, k])


class FakePlugin:
    """Registers the fake scheduler, and the schedulers and commands of a test."""

    def __init__(self) -> None:
        self.apps: dict[str, FakeApp] = {}
        self.schedulers = ["fake"]
        self.installable = {"absent": "pip install acme-absent"}
        self.in_client = False
        self.commands: list[CommandPlugin] = []

    def add(self, app_id: str, name: str, **fields: Any) -> None:
        """Add an app that another program submitted."""
        self.apps[app_id] = FakeApp(AppDef(name), **fields)

    @hookimpl
    def torchx_schedulers(self) -> Iterator[SchedulerPlugin]:
        for name in self.schedulers:
            yield SchedulerPlugin(name, self.create)
        for name, command in self.installable.items():
            yield SchedulerPlugin(name, "", install=command)

    @hookimpl
    def torchx_commands(self) -> Iterator[CommandPlugin]:
        yield from self.commands

    def create(self, session_name: str, **params: Any) -> FakeScheduler:
        scheduler = FakeScheduler(session_name, self.apps, **params)
        scheduler.in_client = self.in_client
        return scheduler


class OtherScheduler(FakeScheduler):
    """A scheduler whose ``list`` fails or hangs if its plugin has it in ``errors`` or ``hangs``."""

    def __init__(self, name: str, other: OtherPlugin, session_name: str) -> None:
        super().__init__(session_name, other.apps)
        self.backend = name
        self.other = other

    def list(self, cfg: Any = None) -> Any:
        if self.other.hangs == self.backend:
            self.other.release.wait()
        if self.backend in self.other.errors:
            raise self.other.errors[self.backend]
        return super().list(cfg) if self.backend == "other" else []


class OtherPlugin:
    """Registers the schedulers ``other``, ``third`` and ``fourth``."""

    def __init__(self) -> None:
        self.apps: dict[str, FakeApp] = {}
        self.errors: dict[str, Exception] = {}
        self.hangs = ""
        self.release = threading.Event()

    def add(self, app_id: str, name: str, **fields: Any) -> None:
        self.apps[app_id] = FakeApp(AppDef(name), **fields)

    @hookimpl
    def torchx_schedulers(self) -> Iterator[SchedulerPlugin]:
        for name in ("other", "third", "fourth"):

            def create(session_name: str, name: str = name, **params: Any) -> OtherScheduler:
                return OtherScheduler(name, self, session_name)

            yield SchedulerPlugin(name, create)


class Result(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The single line that begins with ``torchx: error:``."""
        lines = [line for line in self.err.splitlines() if line.startswith("torchx: error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0].removeprefix("torchx: error: ")


Cli = Callable[..., Result]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[FakePlugin]:
    """Register only the fake plugin and our commands; the home and working folders are empty."""
    import torchx_cli.plugin

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("TORCHX") or name == "LOGLEVEL"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TORCHX_CONTEXT_NAME", "test")
    manager = PluginManager(discover=False)
    fake = FakePlugin()
    manager.register(torchx_cli.plugin, "cli", Origin("torchx-cli", "1", "cli"))
    manager.register(fake, "fake", Origin("fake-dist", "2.0", "fake"))
    set_manager(manager)
    yield fake
    set_manager(None)


@pytest.fixture
def others(plugin: FakePlugin) -> Iterator[OtherPlugin]:
    found = OtherPlugin()
    get_manager().register(found, "others", Origin("others-dist", "1", "others"))
    yield found
    found.release.set()


@pytest.fixture
def cli(plugin: FakePlugin, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Return a function that runs the command in this process."""
    from torchx_cli.main import execute

    before = logging.getLogger().handlers[:]

    def run(*argv: str) -> Result:
        capsys.readouterr()
        code = execute(list(argv))
        output = capsys.readouterr()
        return Result(code, output.out, output.err)

    yield run
    logging.getLogger().handlers[:] = before


@pytest.fixture
def components(tmp_path: Any) -> str:
    """Write a file with components, and return its path relative to the working directory."""
    (tmp_path / "comp.py").write_text(
        '''
from torchx_specs import AppDef, Resource, Role


def job(name: str = "job", replicas: int = 1) -> AppDef:
    """Print a greeting.

    Args:
        name: Name of the app.
        replicas: Number of replicas.
    """
    role = Role("main", image="img", entrypoint="echo", args=["hi"], num_replicas=replicas)
    role.resource = Resource(cpu=1, gpu=0, memMB=64)
    return AppDef(name, roles=[role])


def raises(what: str = "boom") -> AppDef:
    raise KeyError(what)


def exits() -> AppDef:
    raise SystemExit(7)


def nothing() -> AppDef:
    return None


def untyped(x) -> AppDef:
    return AppDef("x")


class Raising:
    """Fails."""

    def __init__(self, what: str = "built") -> None:
        self.what = what

    def build(self) -> AppDef:
        raise KeyError(self.what)


def script(*args: str, name: str = "train") -> AppDef:
    """Run a script with arguments."""
    role = Role("main", image="img", entrypoint="python", args=["t.py", *args])
    role.resource = Resource(cpu=1, gpu=0, memMB=64)
    return AppDef(name, roles=[role])
'''
    )
    return "comp.py"
