"""Fixtures and helpers of the conformance suites of schedulers and of groups."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from torchx_kit.home import home_path
from torchx_runner import Runner
from torchx_specs import (
    AppDef,
    AppState,
    AppStatus,
    Resource,
    Role,
    is_started,
)
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.schedulers import ListAppResponse, Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery
from torchx_specs.schedulers.older import features_of
from torchx_testing.declared import Suite

#: The features that ``unsupported`` may name in the suite of schedulers.
FEATURES = frozenset(field.name for field in fields(SchedulerFeatures))

T = TypeVar("T")

_DENIED = "the scheduler's record denies it"


def has_name(app: ListAppResponse, name: str) -> bool:
    """Return True if an app has this name, or an id that begins with it after the last colon."""
    app_id = app.app_id.rpartition(":")[2]
    return app.name == name or app_id == name or app_id.startswith(f"{name}-")


class SchedulerFixtures(Suite):
    """Base of the conformance suites of schedulers and of groups: fixtures and helpers.

    A subclass defines fixtures, names and limits.

    Attributes:
        scheduler_name: The scheduler's name in the runner and in app handles.
        unsupported: The :data:`FEATURES` that the site of the tests lacks, with the reasons; these
            take precedence over those in the scheduler's record.
        cannot_carry: Names, or prefixes of names, of the hostile values that the backend cannot
            pass to a job unchanged, with the reasons. A dry run must refuse these values.
        pending_cfg: Options with which a job stays pending, for the test that cancels such a job.
        time_limit_cfg: Options that end a job after a few seconds, for the test of time limits.
        timeout: Time limit for each job, in seconds.
        poll_interval: Pause between two polls of a job, in seconds.
        image: The image of the roles.
        python: Path of a Python in the image. If set, the tests of hostile values run a second
            time, with a Python program instead of a shell script.
    """

    kind: ClassVar[str] = "scheduler"
    features: ClassVar[frozenset[str]] = FEATURES
    scheduler_name: ClassVar[str] = "conformance"
    cannot_carry: ClassVar[Mapping[str, str]] = {}
    pending_cfg: ClassVar[Mapping[str, Any] | None] = None
    time_limit_cfg: ClassVar[Mapping[str, Any] | None] = None
    timeout: ClassVar[float] = 60.0
    poll_interval: ClassVar[float] = 0.5
    python: ClassVar[str] = ""
    image: ClassVar[str] = ""

    # A subclass may override the following fixtures and methods.

    @pytest.fixture
    def scheduler(self) -> Scheduler[Any]:
        """Return the scheduler under test."""
        raise NotImplementedError("a conformance class has to define the fixture `scheduler`")

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        """Return the options of each submission."""
        return {}

    def resource(self) -> Resource:
        """Return the resource of each role."""
        return Resource(cpu=1, gpu=0, memMB=64)

    @pytest.fixture
    def store_secret(self) -> Iterator[Callable[[str, str, str], object]]:
        """Yield a function that stores a secret where the scheduler under test finds it.

        The arguments of the function are the secret's name, a key and the value. The default writes
        the value to the file ``$TORCHX_HOME/secrets/NAME/KEY``, and deletes it after the test.
        """
        folders = []

        def store(name: str, key: str, value: str) -> None:
            folders.append(Path(home_path("secrets", name)))
            folders[-1].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folders[-1].mkdir(mode=0o700)
            (folders[-1] / key).touch(mode=0o600)
            (folders[-1] / key).write_text(value)

        yield store
        for folder in folders:
            shutil.rmtree(folder)

    # The following methods are helpers of the tests.

    @classmethod
    def subject(cls) -> str:
        """Return the name of the scheduler."""
        return cls.scheduler_name

    def declared(self) -> Mapping[str, str]:
        """Return the features that the scheduler or the site lacks, with the reasons."""
        # Not every test creates the scheduler, so it is created at the first use.
        features = features_of(self._request.getfixturevalue("scheduler"))
        denied = {name: _DENIED for name, value in vars(features).items() if not value}
        return {**denied, **features.lacks(), **self.unsupported}

    @property
    def patience(self) -> float:
        """The time limit of a job, in seconds."""
        return self._request.config.getoption("--torchx-timeout") or self.timeout

    @pytest.fixture
    def runner(self, scheduler: Scheduler[Any]) -> Iterator[Runner]:
        """Yield a runner with the scheduler, and delete the runner's apps after the test."""
        with Runner("conformance", {self.scheduler_name: lambda name, **_: scheduler}) as runner:
            yield runner
            app_ids = [parse_app_handle(handle).app_id for handle in runner._apps]
            scheduler.app_arrays.delete(app_ids)

    def sh(self, script: str, name: str = "main", **fields: Any) -> Role:
        """Return a role that runs a shell script."""
        fields.setdefault("args", ["-c", script])
        fields.setdefault("image", self.image)
        fields.setdefault("resource", self.resource())
        return Role(name=name, entrypoint="sh", **fields)

    def submit(self, runner: Runner, cfg: dict[str, Any], *roles: Role, name: str = "conf") -> str:
        """Submit an app with these roles and return its handle."""
        app = AppDef(name, roles=list(roles))
        return str(runner.run(app, self.scheduler_name, cfg))

    def started(self, runner: Runner, cfg: dict[str, Any], *roles: Role) -> str:
        """Submit an app, wait until it has started, and return its handle."""
        handle = self.submit(runner, cfg, *roles)
        self.until(lambda: is_started(self.state(runner, handle)), f"{handle} has not started")
        return handle

    def ended(
        self, runner: Runner, cfg: dict[str, Any], *roles: Role, name: str = "conf"
    ) -> tuple[str, AppStatus]:
        """Submit an app, wait for its end, and return its handle and its last status."""
        handle = self.submit(runner, cfg, *roles, name=name)
        return handle, self.finish(runner, handle)

    def succeeded(
        self, runner: Runner, cfg: dict[str, Any], *roles: Role, name: str = "conf"
    ) -> str:
        """Submit an app, wait until it has succeeded, and return its handle."""
        handle, status = self.ended(runner, cfg, *roles, name=name)
        assert status.state == AppState.SUCCEEDED
        return handle

    def state(self, runner: Runner, handle: str) -> AppState:
        """Return the state of an app, which must exist."""
        status = runner.status(handle)
        assert status is not None
        return status.state

    def finish(self, runner: Runner, handle: str) -> AppStatus:
        """Wait for the end of an app and return its last status."""
        status = runner.wait(handle, wait_interval=self.poll_interval, timeout=self.patience)
        assert status is not None, f"{handle} is unknown after it was submitted"
        return status

    def cancelled(self, runner: Runner, handle: str) -> None:
        """Cancel an app, and check that this was its end."""
        runner.cancel(handle)
        state = self.finish(runner, handle).state
        assert state in (AppState.CANCELLED, AppState.FAILED)
        self.needs("cancel_state")
        assert state == AppState.CANCELLED

    def until(self, call: Callable[[], T], failure: str, *errors: type[Exception]) -> T:
        """Call a function until its result is true, and return the result.

        Args:
            call: The function.
            failure: The message of the failed test if the time limit passes before.
            errors: Errors of the function after which it is called again.
        """
        deadline = time.monotonic() + self.patience
        while True:
            with suppress(*errors):
                if result := call():
                    return result
            assert time.monotonic() < deadline, f"{failure} after {self.patience} seconds"
            time.sleep(0.1)

    @contextmanager
    def cancels_in_time(self, runner: Runner, handle: str) -> Iterator[None]:
        """Cancel an app after the time limit, which also ends the followers of its log."""
        timer = threading.Timer(self.patience, runner.cancel, [handle])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def lines(self, runner: Runner, handle: str, role: str = "main", **kw: Any) -> list[str]:
        """Return the log lines of a replica."""
        self.needs("logs")
        return list(runner.log_lines(handle, role, **kw))

    def logs(
        self, runner: Runner, handle: str, replicas: list[tuple[str, int]], query: LogQuery
    ) -> dict[tuple[str, int], list[str]]:
        """Return the log lines of several replicas, which are read at the same time."""
        lines: dict[tuple[str, int], list[str]] = {replica: [] for replica in replicas}
        for replica, block in runner.log_blocks(handle, replicas, query):
            assert not isinstance(block, Exception), block
            lines[replica] += block
        return lines

    def complete_lines(
        self, runner: Runner, handle: str, last: str, role: str = "main", **kw: Any
    ) -> list[str]:
        """Return the log lines of an ended app once ``last`` is among them.

        A separate log service may receive the last lines later than the scheduler reports the end.
        """

        def read() -> list[str]:
            lines = self.lines(runner, handle, role, **kw)
            return lines if last in (line.rstrip("\n") for line in lines) else []

        return self.until(read, f"the log of {handle} has no line '{last}'")
