"""Tests of the driver that supervises the elements in its own thread."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sweep_helpers import numbers

from patience import wait_for
from torchx_runner import Runner, get_runner
from torchx_sched_local.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.errors import BackendError
from torchx_specs.formats import serialize
from torchx_specs.model.status import AppStatus
from torchx_specs.schedulers import ListAppResponse
from torchx_sweep import api, cancel, delete, results, sweep
from torchx_sweep.drivers import driver
from torchx_sweep.drivers.driver import Driver
from torchx_sweep.drivers.local_driver import LocalDriver
from torchx_sweep.store import ElementRecord, ElementState, Store, StoreError, SweepRecord


class End(NamedTuple):
    app_id: str
    state: AppState
    msg: str


class DoubleSupervisor:
    """Keeps apps in memory; each call of ``wait`` ends the app that was started first."""

    def __init__(self) -> None:
        self.running: deque[str] = deque()
        self.started: list[AppDef] = []
        self.cancelled: list[str] = []
        self.batches: list[str] = []

    def share_supervision(self) -> None:
        raise AssertionError("the driver's process calls this")

    def supervise_here(self) -> None:
        raise AssertionError("the driver's process calls this")

    def open_batch(self, name: str, app: AppDef, dryrun_info: Any) -> str:
        self.batches.append(name)
        return name

    def start_in_batch(self, batch: str, app: AppDef) -> str:
        app_id = f"{batch}-x-{len(self.started)}"
        self.started.append(app)
        self.running.append(app_id)
        return app_id

    def wait(self, seconds: float) -> Sequence[End]:
        if not self.running:
            return []
        app_id = self.running.popleft()
        is_cancelled = app_id in self.cancelled
        return [End(app_id, AppState.CANCELLED if is_cancelled else AppState.SUCCEEDED, "")]

    def cancel(self, app_ids: Iterable[str]) -> None:
        self.cancelled += app_ids


class CountingStore(Store):
    """Records the size of each claim; ``errors`` has an error or None for each next claim."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[int] = []
        self.errors: list[StoreError | None] = []

    def claim(self, sweep_id: str, elements: Any, changed: Any = ()) -> set[int]:
        elements = list(elements)
        if self.errors and (error := self.errors.pop(0)):
            raise error
        self.claims.append(len(elements))
        return super().claim(sweep_id, elements, changed)


def make_app(n: int, **fields: Any) -> AppDef:
    resource = Resource(cpu=1, gpu=0, memMB=1)
    role = Role("main", image="", entrypoint="true", args=[str(n)], resource=resource, **fields)
    return AppDef("e", roles=[role])


def make_driver(
    store: Store, supervisor: DoubleSupervisor, apps: Sequence[AppDef], **settings: Any
) -> LocalDriver:
    fields: dict[str, Any] = {"max_parallel": 2, "retries": 0, "limits": {}, "after": []}
    fields |= settings
    record = SweepRecord("s", "test", "comp", "local_cwd", {}, "/", 0.0, **fields)
    texts = map(serialize.to_json, apps)
    store.add(record, [({"i": i}, f"e-s-{i}-0", text) for i, text in enumerate(texts)])
    return LocalDriver(
        store, record, Runner("test", {"local_cwd": create_scheduler}), 0, supervisor, supervisor
    )


def test_short_elements_are_claimed_before_there_is_room_for_them() -> None:
    supervisor = DoubleSupervisor()
    with CountingStore() as store:
        make_driver(store, supervisor, [make_app(i) for i in range(200)]).run()
        assert store.counts("s") == {ElementState.SUCCEEDED: 200}
        assert sum(store.claims) == 200
        assert len(store.claims) < 30
        handles = [element.handle for element in store.elements("s")]
    assert [app.roles[0].args for app in supervisor.started] == [[str(i)] for i in range(200)]
    assert [app.name for app in supervisor.started] == [f"e-s-{i}-0" for i in range(200)]
    assert supervisor.batches == ["e-s"]
    assert handles == [f"local_cwd://test/e-s-x-{i}" for i in range(200)]


def test_apps_of_other_shapes_have_their_own_batches() -> None:
    supervisor = DoubleSupervisor()
    apps = [make_app(i, env={"A": "1"} if i % 2 else {}, mounts=[]) for i in range(6)]
    apps += [make_app(i, metadata={"x": i}) for i in range(2)]
    with Store() as store:
        make_driver(store, supervisor, apps).run()
        assert store.counts("s") == {ElementState.SUCCEEDED: 8}
    assert len(supervisor.batches) == 4
    assert [app.roles[0].env for app in supervisor.started[:2]] == [{}, {"A": "1"}]


def test_elements_that_fit_into_no_batch_start_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor = DoubleSupervisor()
    alone: list[int] = []

    def start_alone(self: Driver, element: ElementRecord, app: AppDef) -> None:
        alone.append(element.number)
        self._end(element, ElementState.SUCCEEDED, "")

    monkeypatch.setattr(Driver, "_start", start_alone)
    apps = [make_app(i, env={f"A{i}": "1"}) for i in range(20)]
    with Store() as store:
        make_driver(store, supervisor, apps).run()
        assert store.counts("s") == {ElementState.SUCCEEDED: 20}
    assert len(supervisor.batches) == 16
    assert alone == [16, 17, 18, 19]


def test_a_cancelled_sweep_gives_claimed_elements_back() -> None:
    supervisor = DoubleSupervisor()
    with Store() as store:
        local = make_driver(store, supervisor, [make_app(i) for i in range(200)])
        start = supervisor.start_in_batch

        def start_and_cancel(batch: str, app: AppDef) -> str:
            if len(supervisor.started) == 50:
                store.cancel("s")
                local._next_look = 0.0
            return start(batch, app)

        supervisor.start_in_batch = start_and_cancel  # type: ignore[method-assign]
        local.run()
        counts = store.counts("s")
    assert set(counts) == {ElementState.SUCCEEDED, ElementState.CANCELLED}
    assert sum(counts.values()) == 200
    assert counts[ElementState.CANCELLED] >= 140
    assert len(supervisor.started) < 60


def test_claimed_elements_survive_an_error_of_the_database() -> None:
    supervisor = DoubleSupervisor()
    with CountingStore() as store:
        local = make_driver(store, supervisor, [make_app(i) for i in range(100)])
        store.errors = [None, None, StoreError("full"), None, StoreError("full")]
        sleep = local._sleep
        local._sleep = lambda seconds: sleep(0.0)  # type: ignore[method-assign]
        local.run()
        assert store.counts("s") == {ElementState.SUCCEEDED: 100}
    assert sorted(int(app.roles[0].args[0]) for app in supervisor.started) == list(range(100))


def test_an_element_that_ends_before_its_start_returns_has_a_duration() -> None:
    supervisor = DoubleSupervisor()
    start = supervisor.start_in_batch

    def start_slowly(batch: str, app: AppDef) -> str:
        app_id = start(batch, app)
        time.sleep(0.1)
        return app_id

    supervisor.start_in_batch = start_slowly  # type: ignore[method-assign]
    with Store() as store:
        make_driver(store, supervisor, [make_app(0)]).run()
        (element,) = store.elements("s")
    assert element.submitted is not None
    assert element.ended is not None
    assert element.ended - element.submitted > 0.09


def test_an_app_that_exists_after_an_error_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = DoubleSupervisor()
    monkeypatch.setattr(driver, "_BACKEND_PAUSE", 0.001)
    statuses = iter([AppState.RUNNING, AppState.FAILED])

    class DoubleRunner(Runner):
        def list(self, scheduler: str, cfg: Any = None) -> list[ListAppResponse]:
            handle = "local_cwd://test/e-s-x-7"
            return [ListAppResponse("e-s-x-7", AppState.RUNNING, handle, "e-s-0-0")]

        def status(self, app_handle: str) -> AppStatus:
            assert app_handle == "local_cwd://test/e-s-x-7"
            return AppStatus(next(statuses), msg="polled")

    def fail(batch: str, app: AppDef) -> str:
        raise BackendError("too many processes")

    supervisor.start_in_batch = fail  # type: ignore[method-assign]
    with Store() as store:
        local = make_driver(store, supervisor, [make_app(0)])
        local._runner = DoubleRunner("test", {"local_cwd": create_scheduler})
        local.run()
        (element,) = store.elements("s")
    assert (element.state, element.reason) == (ElementState.FAILED, "polled")


def test_cancel_ends_the_processes_and_gives_claimed_elements_back(out: Path) -> None:
    with get_runner() as runner:
        words = ["--out", str(out), "--sleep", "0.05"]
        handle = sweep(runner, "comp.py:train", words, grid=["n=0:300"], max_parallel=4)
    wait_for(lambda: len(numbers(out)) >= 20)
    cancel(handle)
    expected = {ElementState.SUCCEEDED, ElementState.CANCELLED}
    wait_for(lambda: {element.state for element in results(handle)} == expected)
    written = numbers(out)
    assert len(written) == len(set(written))
    succeeded = {e.number for e in results(handle) if e.state is ElementState.SUCCEEDED}
    assert succeeded <= set(written)
    with get_runner() as runner:
        delete(handle, runner)
        assert runner.list("local_cwd") == []


def test_elements_that_fail_to_start_end_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api, "ensure_driver", lambda store, sweep_id: None)
    (tmp_path / "missing.py").write_text(
        "from torchx_specs import AppDef, Resource, Role\n"
        "def run(program: str) -> AppDef:\n"
        "    resource = Resource(cpu=1, gpu=0, memMB=1)\n"
        "    return AppDef('x', [Role('main', '', entrypoint='sh', resource=resource,\n"
        "        args=['-c', 'exit 0'] if program == 'sh' else ['x' * 200_000])])\n"
    )
    with get_runner() as runner:
        handle = sweep(runner, "missing.py:run", [], grid={"program": ["sh", "no", "sh"]})
    sweep_id = handle.rpartition("/")[2]
    code = f"from torchx_sweep.drivers.process import drive; drive({sweep_id!r}, is_dedicated=True)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    found = [(element.state.value, element.reason) for element in results(handle)]
    assert [state for state, _ in found] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert "Argument list too long" in found[1][1]
