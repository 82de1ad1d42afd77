"""Tests of sweeps on several schedulers: of the driver, and of the checks before a submission.

The doubles start and end apps at random moments. In one test, they also lose answers and kill the
driver.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import Torchx

from manual_clock import ManualClock
from torchx_runner import Runner, get_runner
from torchx_specs import AppDef, AppDryRunInfo, AppState, Resource, Role
from torchx_specs.errors import BackendError, CapacityError, RequestError
from torchx_specs.formats import serialize
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_sweep.drivers import driver
from torchx_sweep.drivers.first_free import FirstFreeDriver
from torchx_sweep.schedulers import (
    apps_to_json,
    check_gpus,
    check_schedulers,
    literals_of,
    scheduler_names,
    split_options,
)
from torchx_sweep.store import ElementState, Store, SweepRecord


class Killed(BaseException):
    """A SIGKILL of the driver."""


class World:
    """The random events around the driver: starts and ends of apps, lost answers, kills.

    Args:
        seed: Selects the events.
        faults: The probability that the driver is killed or gets an error. Each request has this
            risk once before and once after its effect.
    """

    def __init__(self, seed: int, faults: float = 0.0) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no cryptography
        self.faults = faults
        self.begun: list[str] = []

    def maybe_fail(self) -> None:
        """Fail or kill the driver at random."""
        if self.random.random() < self.faults:
            raise self.random.choice([BackendError("no answer"), Killed()])


class QueueDouble(Scheduler[Any]):
    """A queue with places; an app starts at a random moment if a place is free.

    Args:
        name: The scheduler's name.
        world: Selects the random events.
        places: How many apps may run at the same time.
    """

    starts_at_once = False

    def __init__(self, name: str, world: World, places: int) -> None:
        super().__init__(name, "test")
        self.world = world
        self.places = places
        self.capacity = 1_000
        self.states: dict[str, AppState] = {}
        self.names: dict[str, str] = {}

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
        return AppDryRunInfo(app, str)

    def running(self) -> int:
        return sum(state is AppState.RUNNING for state in self.states.values())

    def go_on(self) -> None:
        """Start and end some apps."""
        for app_id, state in self.states.items():
            chance = self.world.random.random()
            if state is AppState.RUNNING and chance < 0.3:
                self.states[app_id] = AppState.SUCCEEDED
            elif state is AppState.PENDING and self.running() < self.places and chance < 0.5:
                self.start(app_id)

    def start(self, app_id: str) -> None:
        self.states[app_id] = AppState.RUNNING
        self.world.begun.append(self.names[app_id].rsplit("-", 1)[0])

    def schedule(self, dryrun_info: AppDryRunInfo[AppDef]) -> str:
        self.world.maybe_fail()
        self.go_on()
        unfinished = (AppState.PENDING, AppState.RUNNING)
        if sum(state in unfinished for state in self.states.values()) >= self.capacity:
            raise CapacityError("too many jobs")
        app_id = f"{self.backend}-{len(self.states)}"
        self.names[app_id] = dryrun_info.request.name
        self.states[app_id] = AppState.PENDING
        if self.starts_at_once:
            self.start(app_id)
        self.world.maybe_fail()
        return app_id

    def withdraw(self, app_id: str) -> bool:
        self.world.maybe_fail()
        self.go_on()
        if self.states[app_id] is AppState.PENDING:
            self.states[app_id] = AppState.CANCELLED
        self.world.maybe_fail()
        return self.states[app_id] is AppState.CANCELLED

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        self.go_on()
        return DescribeAppResponse(app_id, self.states[app_id])

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        self.go_on()
        return [ListAppResponse(i, s, name=self.names[i]) for i, s in self.states.items()]

    def _cancel_existing(self, app_id: str) -> None:
        if self.states[app_id] in (AppState.PENDING, AppState.RUNNING):
            self.states[app_id] = AppState.CANCELLED


class MachineDouble(QueueDouble):
    """Starts an app when it is submitted, as ``local_cwd`` does."""

    starts_at_once = True


@pytest.fixture(autouse=True)
def many_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_BACKEND_RETRIES", 1_000)


def new_sweep(
    schedulers: list[QueueDouble], count: int, cpus: int, parallel: int = 100
) -> tuple[Store, SweepRecord, Runner]:
    """Return a database with one sweep, the record of this sweep, and a runner for its driver."""
    role = Role("main", image="", entrypoint="true", resource=Resource(cpu=1, gpu=0, memMB=1))
    names = [scheduler.backend for scheduler in schedulers]
    app = AppDef("e", roles=[role])
    cfg: dict[str, Any] = {}
    text = serialize.to_json(app)
    if len(names) > 1:
        cfg = {name: {} for name in names}
        text = apps_to_json(dict.fromkeys(names, app))
    record = SweepRecord(
        *("s", "test", "comp", ",".join(names), cfg, "/", 0.0),
        *(parallel, 0, {"cpus": cpus}, []),
    )
    store = Store()
    store.add(record, [({"i": i}, f"e-s-{i}-0", text) for i in range(count)])
    factories: Any = {s.backend: lambda session_name, s=s, **kwargs: s for s in schedulers}
    return store, record, Runner("test", factories)


def run(kind: type[driver.Driver], store: Store, record: SweepRecord, runner: Runner) -> None:
    """Run a new driver, whose pauses take no time."""
    clock = ManualClock()
    kind(store, record, runner, clock=clock, sleep=clock.sleep).run()


def drive(schedulers: list[QueueDouble], count: int, cpus: int, parallel: int = 100) -> Store:
    """Drive a sweep to its end; after each kill, a new driver takes over."""
    store, record, runner = new_sweep(schedulers, count, cpus, parallel)
    with runner:
        while True:
            try:
                run(FirstFreeDriver, store, record, runner)
            except Killed:
                continue
            return store


def succeeded(store: Store) -> int:
    counts = store.counts("s")
    assert set(counts) == {ElementState.SUCCEEDED}, store.elements("s")
    return counts[ElementState.SUCCEEDED]


@pytest.mark.parametrize("seed", range(25))
def test_each_element_begins_once_whatever_happens(seed: int) -> None:
    world = World(seed, faults=0.05)
    schedulers = [
        QueueDouble("first", world, 2),
        MachineDouble("local_cwd", world, 100),
        QueueDouble("second", world, 1 + seed % 3),
    ]
    with drive(schedulers, 30, cpus=2) as store:
        assert succeeded(store) == 30
        for element in store.elements("s"):
            assert element.earlier == [] or element.attempt == len(element.earlier)
    assert Counter(world.begun) == Counter({f"e-s-{i}": 1 for i in range(30)})


@pytest.mark.parametrize("names", [["local_cwd"], ["queue", "local_cwd"]])
def test_an_app_whose_start_was_interrupted_fails_although_two_drivers_are_killed(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(5)
    machine = MachineDouble("local_cwd", world, 100)
    schedulers = [QueueDouble("queue", world, 0), machine][-len(names) :]
    store, record, runner = new_sweep(schedulers, 1, cpus=1)
    kind = FirstFreeDriver if len(names) > 1 else driver.Driver

    def kill_after_submission() -> None:
        if machine.states:
            raise Killed

    def kill_after_recovery(self: driver.Driver) -> None:
        if self._running:
            raise Killed

    with runner, store:
        # The first driver is killed before it has recorded the app that it has submitted. The
        # second one finds and records the app, and is killed before it polls the app.
        monkeypatch.setattr(world, "maybe_fail", kill_after_submission)
        with pytest.raises(Killed):
            run(kind, store, record, runner)
        with monkeypatch.context() as patch:
            patch.setattr(kind, "_poll", kill_after_recovery)
            with pytest.raises(Killed):
                run(kind, store, record, runner)
        (element,) = store.elements("s")
        assert element.state is ElementState.SUBMITTED
        assert element.handle == "local_cwd://test/local_cwd-0"
        (app_id,) = machine.states
        machine.states[app_id] = AppState.CANCELLED
        run(kind, store, record, runner)
        (element,) = store.elements("s")
    assert element.state is ElementState.FAILED
    assert element.reason.startswith("the driver of the sweep was killed: ")


def test_an_interrupted_element_moves_although_the_scheduler_does_not_answer_its_withdrawal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(6)
    full = QueueDouble("full", world, 0)
    machine = MachineDouble("local_cwd", world, 100)
    machine.capacity = 0
    store, record, runner = new_sweep([full, machine], 1, cpus=1)

    def kill_after_submission() -> None:
        if full.states:
            raise Killed

    def fail_after_withdrawal() -> None:
        if AppState.CANCELLED in full.states.values() and len(refused) < 3:
            refused.append(1)
            raise BackendError("no answer")

    refused: list[int] = []
    with runner, store:
        monkeypatch.setattr(world, "maybe_fail", kill_after_submission)
        with pytest.raises(Killed):
            run(FirstFreeDriver, store, record, runner)
        machine.capacity = 1
        monkeypatch.setattr(world, "maybe_fail", fail_after_withdrawal)
        run(FirstFreeDriver, store, record, runner)
        (element,) = store.elements("s")
    assert len(refused) == 3
    assert element.state is ElementState.SUCCEEDED, element.reason
    assert element.handle.startswith("local_cwd://")


@pytest.mark.parametrize("is_killed_in_request", [False, True])
def test_an_interrupted_element_fails_although_its_move_was_interrupted_too(
    is_killed_in_request: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler cancels an incomplete app, but only after a second driver was killed."""
    world = World(7)
    full = QueueDouble("full", world, 0)
    machine = MachineDouble("local_cwd", world, 100)
    machine.capacity = 0
    store, record, runner = new_sweep([full, machine], 1, cpus=1)
    requests: list[str] = []

    def kill_after_submission() -> None:
        if full.states:
            raise Killed

    def refuse(app_id: str) -> bool:
        requests.append(app_id)
        if is_killed_in_request:
            raise Killed
        return False

    def refuse_and_cancel(app_id: str) -> bool:
        full.states[app_id] = AppState.CANCELLED
        return False

    begin_move = FirstFreeDriver._begin_move

    def kill_after_request(self: FirstFreeDriver) -> bool:
        has_changed = begin_move(self)
        if requests:
            raise Killed
        return has_changed

    with runner, store:
        monkeypatch.setattr(world, "maybe_fail", kill_after_submission)
        with pytest.raises(Killed):
            run(FirstFreeDriver, store, record, runner)
        machine.capacity = 1
        monkeypatch.setattr(full, "withdraw", refuse)
        with monkeypatch.context() as patch:
            patch.setattr(FirstFreeDriver, "_begin_move", kill_after_request)
            with pytest.raises(Killed):
                run(FirstFreeDriver, store, record, runner)
        monkeypatch.setattr(full, "withdraw", refuse_and_cancel)
        run(FirstFreeDriver, store, record, runner)
        (element,) = store.elements("s")
    assert element.state is ElementState.FAILED
    assert element.reason.startswith("the driver of the sweep was killed: ")


class UnstartedDouble(MachineDouble):
    """Records an app without starting it, as an engine does whose client is killed in between."""

    def start(self, app_id: str) -> None:
        self.states[app_id] = AppState.SUBMITTED

    def _cancel_existing(self, app_id: str) -> None:
        self.states[app_id] = AppState.CANCELLED


@pytest.mark.parametrize("names", [["local_docker"], ["queue", "local_docker"]])
@pytest.mark.parametrize("count", [1, 20])
def test_an_app_that_a_killed_driver_did_not_start_fails_and_does_not_stay_unfinished(
    names: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(5)
    machine = UnstartedDouble("local_docker", world, 100)
    schedulers = [QueueDouble("queue", world, 0), machine][-len(names) :]
    store, record, runner = new_sweep(schedulers, count, cpus=count)
    kind = FirstFreeDriver if len(names) > 1 else driver.Driver

    def kill_after_submission(self: driver.Driver, *arguments: object) -> None:
        if len(machine.states) == count:
            raise Killed

    with runner, store:
        with monkeypatch.context() as patch:
            patch.setattr(kind, "_on_submitted", kill_after_submission)
            with pytest.raises(Killed):
                run(kind, store, record, runner)
        run(kind, store, record, runner)
        elements = store.elements("s")
    assert [element.state for element in elements] == [ElementState.FAILED] * count
    reasons = {element.reason for element in elements}
    assert reasons == {"the driver of the sweep was killed: its app was cancelled"}


def test_elements_that_wait_in_a_full_queue_move_to_this_machine() -> None:
    world = World(1)
    full = QueueDouble("full", world, 0)
    machine = MachineDouble("local_cwd", world, 100)
    with drive([full, machine], 10, cpus=2) as store:
        assert succeeded(store) == 10
    assert len(machine.states) == 10
    assert set(full.states.values()) == {AppState.CANCELLED}
    assert len(world.begun) == len(set(world.begun)) == 10


def test_elements_move_from_a_full_queue_to_a_free_one() -> None:
    world = World(2)
    full, free = QueueDouble("full", world, 0), QueueDouble("free", world, 4)
    with drive([full, free], 12, cpus=1) as store:
        assert succeeded(store) == 12
    assert AppState.SUCCEEDED not in full.states.values()


def test_a_limit_of_one_scheduler_does_not_hold_back_the_others() -> None:
    world = World(3)
    limited = QueueDouble("limited", world, 1)
    limited.capacity = 0
    machine = MachineDouble("local_cwd", world, 100)
    with drive([limited, machine], 6, cpus=1) as store:
        assert succeeded(store) == 6
    assert limited.states == {}


def test_the_number_of_parallel_elements_counts_all_schedulers() -> None:
    world = World(4)
    most = 0

    class Counting(QueueDouble):
        def start(self, app_id: str) -> None:
            nonlocal most
            super().start(app_id)
            most = max(most, sum(scheduler.running() for scheduler in schedulers))

    schedulers: list[QueueDouble] = [Counting("one", world, 5), Counting("two", world, 5)]
    with drive(schedulers, 12, cpus=1, parallel=3) as store:
        assert succeeded(store) == 12
    assert 1 <= most <= 3


def test_a_scheduler_that_cannot_withdraw_for_certain_is_refused() -> None:
    class NoWithdrawal(Scheduler[Any]):
        pass

    factories: Any = {"other": lambda session_name, **kwargs: _abstract(NoWithdrawal)}
    with Runner("test", factories) as runner, pytest.raises(RequestError, match="queue of other"):
        check_schedulers(runner, {"other": {}, "local_cwd": {}})


def test_options_with_which_apps_cannot_be_withdrawn_are_refused() -> None:
    class Partly(QueueDouble):
        def withdrawal_problem(self, cfg: Mapping[str, Any]) -> str | None:
            return "kind=x cannot be withdrawn; use kind=y" if cfg.get("kind") == "x" else None

    factories: Any = {"other": lambda session_name, **kwargs: Partly("other", World(1), 1)}
    with Runner("test", factories) as runner:
        check_schedulers(runner, {"other": {"kind": "y"}, "local_cwd": {}})
        with pytest.raises(RequestError, match="queue of other, but kind=x cannot be withdrawn"):
            check_schedulers(runner, {"other": {"kind": "x"}, "local_cwd": {}})


def _abstract(kind: Any) -> Any:
    kind.__abstractmethods__ = frozenset()
    return kind("other", "test")


def test_options_go_to_the_schedulers_that_have_them() -> None:
    with get_runner() as runner:
        names = ["local_cwd"]
        options = split_options(runner, names, {"log_dir": "/x"})
        assert options == {"local_cwd": {"log_dir": "/x", "detach": True}}
        given: Any = {"local_cwd": {"log_dir": "/x"}}
        assert split_options(runner, names, given) == options
        assert literals_of(runner, names, ["log_dir=/x"]) == {"local_cwd": ["log_dir=/x"]}
        with pytest.raises(RequestError, match="has an option 'partition'"):
            literals_of(runner, names, ["partition=gpu"])


@pytest.mark.parametrize("text", ["", "slurm,", "slurm,slurm", ","])
def test_names_of_schedulers_are_checked(text: str) -> None:
    with pytest.raises(RequestError, match="give different names"):
        scheduler_names(text)


def test_the_command_refuses_an_unknown_scheduler_of_several(torchx: Torchx, out: Path) -> None:
    words = ["-s", "local_cwd,nowhere", "comp.py:train", "--out", str(out), "--grid", "n=0:2"]
    done = torchx("sweep", *words)
    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_elements_with_gpus_are_refused_on_this_machine() -> None:
    resource = Resource(cpu=1, gpu=1, memMB=1)
    app = AppDef("e", roles=[Role("main", image="", entrypoint="true", resource=resource)])
    check_gpus(["slurm", "other"], [app])
    with pytest.raises(RequestError, match="elements that need GPUs"):
        check_gpus(["local_cwd", "slurm"], [app])
