"""Tests of the driver with a double of a scheduler: interrupted submissions, errors, limits."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from manual_clock import ManualClock
from torchx_runner import Runner
from torchx_specs import AppDef, AppDryRunInfo, AppState, Resource, Role, runopts
from torchx_specs.errors import BackendError, CapacityError, RequestError
from torchx_specs.formats import serialize
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_sweep.drivers import driver
from torchx_sweep.drivers.driver import Driver
from torchx_sweep.store import ElementRecord, ElementState, Store, SweepRecord


class DoubleScheduler(Scheduler[Any]):
    """Keeps apps in memory; an app ends when it is described for the second time.

    Args:
        lists_names: Whether ``list`` returns the names of apps.
    """

    def __init__(self, lists_names: bool = True) -> None:
        super().__init__("double", "test")
        self.apps: dict[str, AppDef] = {}
        self.polls: dict[str, int] = {}
        self.outcome: Callable[[AppDef], AppState] = lambda app: AppState.SUCCEEDED
        self.on_schedule: Callable[[AppDef], None] = lambda app: None
        self.most_at_once = 0
        self._lists_names = lists_names

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
        return AppDryRunInfo(app, str)

    def schedule(self, dryrun_info: AppDryRunInfo[AppDef]) -> str:
        app = dryrun_info.request
        app_id = f"job-{len(self.apps)}"
        self.apps[app_id] = app
        try:
            self.on_schedule(app)
        except BackendError as e:
            if "refused" in str(e):
                del self.apps[app_id]
            raise
        running = sum(1 for app_id in self.apps if self.polls.get(app_id, 0) < 2)
        self.most_at_once = max(self.most_at_once, running)
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        app = self.apps.get(app_id)
        if app is None:
            return None
        self.polls[app_id] = self.polls.get(app_id, 0) + 1
        state = self.outcome(app) if self.polls[app_id] > 1 else AppState.RUNNING
        return DescribeAppResponse(app_id, state)

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        found = []
        for app_id, app in self.apps.items():
            description = self.describe(app_id)
            state = description.state if description else AppState.UNKNOWN
            found.append(ListAppResponse(app_id, state, name=app.name if self._lists_names else ""))
        return found

    def _cancel_existing(self, app_id: str) -> None:
        pass

    def names(self) -> list[str]:
        return [app.name for app in self.apps.values()]


class ArraysOfDouble(Arrays["ArrayDouble"]):
    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[AppDef]], max_parallel: int | None = None
    ) -> Iterator[str]:
        return self.scheduler.submit_array(list(dryrun_infos), max_parallel)

    def cancel(self, app_ids: Iterable[str]) -> None:
        self.scheduler.is_cancelled = True


class ArrayDouble(DoubleScheduler):
    """Submits all elements by one request; ``calls`` has the size and the limit of each request."""

    features = SchedulerFeatures(arrays=True, array_limit=True)

    @property
    def app_arrays(self) -> ArraysOfDouble:
        return ArraysOfDouble(self)

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, int | None]] = []
        self.errors: list[Exception | None] = []
        self.capacity = 1_000
        self.is_cancelled = False

    def submit_array(
        self, infos: list[AppDryRunInfo[AppDef]], max_parallel: int | None
    ) -> Iterator[str]:
        self.calls.append((len(infos), max_parallel))
        if self.errors and (error := self.errors.pop(0)):
            raise error
        for info in infos:
            unfinished = sum(1 for app_id in self.apps if self.polls.get(app_id, 0) < 2)
            if unfinished >= self.capacity:
                raise CapacityError("too many jobs")
            yield self.schedule(info)


class LazyDouble(ArrayDouble):
    """Takes and submits the dry runs one by one; ``waiting`` has the largest number in memory."""

    waiting = 0
    made = 0

    @property
    def app_arrays(self) -> Any:
        return LazyArrays(self)

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
        self.made += 1
        self.waiting = max(self.waiting, self.made - len(self.apps))
        return super()._submit_dryrun(app, cfg)


class LazyArrays(Arrays["LazyDouble"]):
    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[AppDef]], max_parallel: int | None = None
    ) -> Iterator[str]:
        for info in dryrun_infos:
            yield from self.scheduler.submit_array([info], max_parallel)


def make_app(cpus: int = 1, gpus: int = 0) -> AppDef:
    resource = Resource(cpu=cpus, gpu=gpus, memMB=1)
    role = Role("main", image="", entrypoint="true", resource=resource)
    return AppDef("e", roles=[role])


def drive(
    scheduler: DoubleScheduler,
    apps: list[AppDef],
    before: Callable[[Store], None] = lambda store: None,
    previous: int = 0,
    clock: ManualClock | None = None,
    **settings: Any,
) -> list[ElementRecord]:
    """Run the driver of a new sweep, and return its elements."""
    clock = clock or ManualClock()
    fields: dict[str, Any] = {
        "max_parallel": 10,
        "retries": 0,
        "limits": {},
        "after": [],
        **settings,
    }
    record = SweepRecord("s", "test", "comp", "double", {}, "/", 0.0, **fields)
    runner = Runner("test", {"double": lambda session_name, **kwargs: scheduler})
    with Store() as store, runner:
        elements = enumerate(serialize.to_json(app) for app in apps)
        store.add(record, [({"i": i}, f"e-s-{i}-0", text) for i, text in elements])
        before(store)
        Driver(store, record, runner, previous, clock=clock, sleep=clock.sleep).run()
        return store.elements("s")


def states(elements: list[ElementRecord]) -> list[str]:
    return [element.state.value for element in elements]


def interrupted(store: Store) -> None:
    """Bring the first element into the state in which a killed driver leaves it."""
    assert store.claim("s", store.elements("s", limit=1)) == {0}


def test_an_interrupted_submission_that_had_an_effect_is_not_repeated() -> None:
    scheduler = DoubleScheduler()
    submitted = make_app()
    submitted.name = "e-s-0-0"
    scheduler.apps["job-x"] = submitted
    elements = drive(scheduler, [make_app(), make_app()], interrupted)
    assert states(elements) == ["SUCCEEDED", "SUCCEEDED"]
    assert elements[0].handle == "double://test/job-x"
    assert sorted(scheduler.names()) == ["e-s-0-0", "e-s-1-0"]


def test_an_app_that_was_cancelled_before_its_start_fails_after_an_interrupted_submission() -> None:
    scheduler = DoubleScheduler()
    scheduler.outcome = lambda app: AppState.CANCELLED
    submitted = make_app()
    submitted.name = "e-s-0-0"
    scheduler.apps["job-x"] = submitted
    elements = drive(scheduler, [make_app(), make_app()], interrupted)
    assert states(elements) == ["FAILED", "CANCELLED"]
    assert elements[0].reason.startswith("the driver of the sweep was killed: ")


@pytest.mark.parametrize("app_id", ["e-s-0-0", "e-s-0-0-abc", "queue:e-s-0-0-abc"])
def test_an_interrupted_submission_is_found_by_an_id_that_begins_with_the_name(
    app_id: str,
) -> None:
    scheduler = DoubleScheduler(lists_names=False)
    scheduler.apps[app_id] = make_app()
    elements = drive(scheduler, [make_app()], interrupted)
    assert elements[0].handle == f"double://test/{app_id}"
    assert len(scheduler.apps) == 1


def test_an_interrupted_submission_without_effect_is_repeated() -> None:
    scheduler = DoubleScheduler()
    assert states(drive(scheduler, [make_app()], interrupted)) == ["SUCCEEDED"]
    assert scheduler.names() == ["e-s-0-0"]


def test_without_names_an_interrupted_submission_fails_and_is_not_repeated() -> None:
    scheduler = DoubleScheduler(lists_names=False)
    scheduler.apps["job-x"] = make_app()
    elements = drive(scheduler, [make_app()], interrupted, retries=3)
    assert states(elements) == ["FAILED"]
    assert "its submission was interrupted, and double lists no names" in elements[0].reason
    assert list(scheduler.apps) == ["job-x"]


def test_an_error_after_the_submission_does_not_repeat_it() -> None:
    scheduler = DoubleScheduler()

    def lose_answer(app: AppDef) -> None:
        if app.name == "e-s-1-0":
            raise BackendError("connection lost")

    scheduler.on_schedule = lose_answer
    elements = drive(scheduler, [make_app() for _ in range(3)])
    assert states(elements) == ["SUCCEEDED"] * 3
    assert sorted(scheduler.names()) == ["e-s-0-0", "e-s-1-0", "e-s-2-0"]


def test_a_refused_submission_is_repeated_until_it_succeeds() -> None:
    scheduler = DoubleScheduler()
    refusals = 5

    def refuse(app: AppDef) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise BackendError("refused: QOSMaxSubmitJobPerUserLimit")

    scheduler.on_schedule = refuse
    elements = drive(scheduler, [make_app(), make_app()])
    assert states(elements) == ["SUCCEEDED"] * 2
    assert [element.attempt for element in elements] == [0, 0]
    assert sorted(scheduler.names()) == ["e-s-0-0", "e-s-1-0"]


def test_an_element_waits_while_the_machine_of_the_scheduler_cannot_be_reached() -> None:
    scheduler = DoubleScheduler(lists_names=False)
    refusals = 12

    def refuse(app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise BackendError("cannot connect to login1: Permission denied (publickey,password)")
        return AppDryRunInfo(app, str)

    scheduler._submit_dryrun = refuse  # type: ignore[method-assign]
    assert states(drive(scheduler, [make_app(), make_app()])) == ["SUCCEEDED"] * 2
    assert sorted(scheduler.names()) == ["e-s-0-0", "e-s-1-0"]


def test_a_submission_that_is_always_refused_fails_with_the_error() -> None:
    scheduler = DoubleScheduler()

    def refuse(app: AppDef) -> None:
        if app.name == "e-s-0-0":
            raise BackendError("refused: invalid partition")

    scheduler.on_schedule = refuse
    elements = drive(scheduler, [make_app(), make_app()])
    assert states(elements) == ["FAILED", "SUCCEEDED"]
    assert elements[0].reason == "refused: invalid partition"


def test_no_more_elements_run_than_max_parallel() -> None:
    scheduler = DoubleScheduler()
    assert (
        states(drive(scheduler, [make_app() for _ in range(9)], max_parallel=2))
        == ["SUCCEEDED"] * 9
    )
    assert scheduler.most_at_once == 2


def test_an_element_that_does_not_fit_is_not_overtaken() -> None:
    scheduler = DoubleScheduler()
    apps = [make_app(3), make_app(4), make_app(1)]
    drive(scheduler, apps, limits={"cpus": 4})
    assert scheduler.names() == ["e-s-0-0", "e-s-1-0", "e-s-2-0"]
    assert scheduler.most_at_once == 1


def test_an_element_that_ran_before_its_submission_was_recorded_has_its_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The elements of an array run while the submission of the last ones is recorded."""
    scheduler = DoubleScheduler()
    describe = scheduler.describe

    def with_times(app_id: str) -> DescribeAppResponse | None:
        found = describe(app_id)
        if found is not None:
            found.started = datetime(2020, 1, 1, 0, 0, 0, tzinfo=timezone.utc)
            found.ended = datetime(2020, 1, 1, 0, 0, 5, tzinfo=timezone.utc)
        return found

    monkeypatch.setattr(scheduler, "describe", with_times)
    [element] = drive(scheduler, [make_app()])
    assert element.started is not None
    assert element.ended is not None
    assert element.ended - element.started == pytest.approx(5)


def test_a_retry_has_a_submission_id_of_its_own() -> None:
    scheduler = DoubleScheduler()
    scheduler.outcome = lambda app: (
        AppState.FAILED if app.name.endswith("-0") else AppState.SUCCEEDED
    )
    (element,) = drive(scheduler, [make_app()], retries=2)
    assert element.state is ElementState.SUCCEEDED
    assert (element.attempt, element.submission) == (1, "e-s-0-1")
    assert (element.handle, element.earlier) == ("double://test/job-1", ["double://test/job-0"])


def test_a_cancelled_sweep_submits_nothing() -> None:
    scheduler = DoubleScheduler()
    elements = drive(scheduler, [make_app()], lambda store: store.cancel("s"))
    assert states(elements) == ["CANCELLED"]
    assert not scheduler.apps


def test_a_sweep_whose_predecessor_failed_is_cancelled() -> None:
    scheduler = DoubleScheduler()
    scheduler.apps["first"] = make_app()
    scheduler.polls["first"] = 2
    scheduler.outcome = lambda app: AppState.FAILED
    elements = drive(scheduler, [make_app()], after=["double://test/first", "ok"])
    assert states(elements) == ["CANCELLED"]
    assert elements[0].reason == "--after double://test/first:ok: this app is FAILED"
    assert list(scheduler.apps) == ["first"]


def test_a_database_that_cannot_be_written_holds_the_sweep_back() -> None:
    scheduler = DoubleScheduler()
    opened: list[Store] = []
    polls = 0

    def set_writable(is_writable: bool) -> None:
        # SQLite then fails as on a full disk: at the first statement that writes.
        opened[0]._db.execute(f"PRAGMA query_only={'OFF' if is_writable else 'ON'}")

    def break_database(app: AppDef) -> None:
        if app.name == "e-s-1-0":
            set_writable(False)

    def outcome(app: AppDef) -> AppState:
        nonlocal polls
        polls += 1
        if polls == 3:
            set_writable(True)
        return AppState.RUNNING if polls < 3 else AppState.SUCCEEDED

    scheduler.on_schedule = break_database
    scheduler.outcome = outcome
    elements = drive(scheduler, [make_app() for _ in range(6)], opened.append, max_parallel=3)
    assert states(elements) == ["SUCCEEDED"] * 6
    assert sorted(scheduler.names()) == [f"e-s-{i}-0" for i in range(6)]


def test_a_program_of_a_killed_driver_ends_before_its_submission_is_repeated() -> None:
    scheduler = DoubleScheduler()
    program = subprocess.Popen(["sleep", "600"], start_new_session=True)
    ended: list[int | None] = []

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now > 200:
                program.kill()
                program.wait()

    scheduler.on_schedule = lambda app: ended.append(program.returncode)
    elements = drive(scheduler, [make_app()], interrupted, previous=program.pid, clock=Clock())
    assert states(elements) == ["SUCCEEDED"]
    assert ended == [-signal.SIGKILL]


def test_one_request_submits_all_elements_with_the_limit() -> None:
    scheduler = ArrayDouble()
    elements = drive(scheduler, [make_app() for _ in range(200)], max_parallel=3)
    assert states(elements) == ["SUCCEEDED"] * 200
    assert scheduler.calls == [(200, 3)]
    assert scheduler.names() == [f"e-s-{i}-0" for i in range(200)]


def test_one_request_submits_the_elements_that_need_the_same_resources() -> None:
    scheduler = ArrayDouble()
    apps = [make_app(2), make_app(2), make_app(2), make_app(1)]
    drive(scheduler, apps, limits={"cpus": 4})
    assert scheduler.calls == [(3, 2), (1, 4)]


def test_arrays_of_a_scheduler_without_a_limit_have_at_most_max_parallel_elements() -> None:
    scheduler = ArrayDouble()
    scheduler.features = replace(scheduler.features, array_limit=False)
    elements = drive(scheduler, [make_app() for _ in range(8)], max_parallel=3)
    assert states(elements) == ["SUCCEEDED"] * 8
    assert scheduler.calls[0] == (3, None)
    assert all(size <= 3 and limit is None for size, limit in scheduler.calls)


def test_retries_wait_until_the_array_leaves_room_for_them() -> None:
    scheduler = ArrayDouble()
    scheduler.outcome = lambda app: (
        AppState.FAILED if app.name.endswith("-0") else AppState.SUCCEEDED
    )
    elements = drive(scheduler, [make_app() for _ in range(5)], max_parallel=2, retries=1)
    assert states(elements) == ["SUCCEEDED"] * 5
    assert scheduler.calls[0] == (5, 2)
    assert all((limit or size) <= 2 for size, limit in scheduler.calls)


def test_an_array_of_an_interrupted_request_is_not_submitted_twice() -> None:
    scheduler = ArrayDouble()
    seen = 0

    def fail_later(app: AppDef) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:  # the app was submitted, but the driver does not get its id
            raise BackendError("unreachable")

    scheduler.on_schedule = fail_later
    assert states(drive(scheduler, [make_app() for _ in range(5)])) == ["SUCCEEDED"] * 5
    assert sorted(scheduler.names()) == [f"e-s-{i}-0" for i in range(5)]


def test_a_limit_on_jobs_holds_elements_back_without_failing_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = ArrayDouble()
    scheduler.capacity = 1
    scheduler.errors = [CapacityError("too many jobs")] * 12
    assert states(drive(scheduler, [make_app() for _ in range(4)])) == ["SUCCEEDED"] * 4
    assert sorted(scheduler.names()) == [f"e-s-{i}-0" for i in range(4)]
    assert "a limit on your jobs holds the other elements back: too many jobs" in caplog.text


def test_a_refused_array_is_submitted_one_element_after_the_other() -> None:
    scheduler = ArrayDouble()
    scheduler.errors = [RequestError("element 0 is wrong")]
    elements = drive(scheduler, [make_app() for _ in range(3)])
    assert states(elements) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert elements[0].reason == "element 0 is wrong"
    assert scheduler.calls == [(3, 10), (1, None), (1, None)]


class DependencyDouble(DoubleScheduler):
    """A scheduler with the option ``after``, which makes the backend hold an app."""

    features = SchedulerFeatures(dependencies=True)

    def __init__(self, can_hold: bool = True) -> None:
        super().__init__()
        self.cfgs: list[Any] = []
        self._can_hold = can_hold

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("after", type_=str, help="wait for this app", default=None)
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
        self.cfgs.append(cfg["after"])
        return super()._submit_dryrun(app, cfg)

    def with_dependency(
        self, cfg: Mapping[str, Any], app_id: str, outcome: str
    ) -> Mapping[str, Any] | None:
        return {**cfg, "after": f"{app_id}:{outcome}"} if self._can_hold else None


@pytest.mark.parametrize("can_hold", [True, False])
def test_the_back_end_holds_elements_if_it_can(can_hold: bool) -> None:
    scheduler = DependencyDouble(can_hold)
    scheduler.apps["first"] = make_app()
    scheduler.apps["first"].name = "first"
    scheduler.polls["first"] = 2
    polls = 0

    def outcome(app: AppDef) -> AppState:
        nonlocal polls
        polls += app.name == "first"
        has_ended = polls > 2 and (not can_hold or len(scheduler.apps) == 3)
        return AppState.SUCCEEDED if has_ended else AppState.RUNNING

    scheduler.outcome = outcome
    elements = drive(scheduler, [make_app(), make_app()], after=["double://test/first", "ok"])
    assert states(elements) == ["SUCCEEDED"] * 2
    assert scheduler.cfgs == (["first:ok"] * 2 if can_hold else [None] * 2)


def test_elements_that_the_back_end_holds_are_cancelled_after_another_outcome() -> None:
    scheduler = DependencyDouble()
    scheduler.apps["first"] = make_app()
    scheduler.apps["first"].name = "first"
    scheduler.polls["first"] = 2
    cancelled: list[str] = []
    scheduler._cancel_existing = cancelled.append  # type: ignore[method-assign]

    def outcome(app: AppDef) -> AppState:
        if app.name == "first":
            return AppState.FAILED if len(scheduler.apps) == 3 else AppState.RUNNING
        app_id = next(key for key, value in scheduler.apps.items() if value is app)
        return AppState.CANCELLED if app_id in cancelled else AppState.PENDING

    scheduler.outcome = outcome
    elements = drive(scheduler, [make_app(), make_app()], after=["double://test/first", "ok"])
    assert states(elements) == ["CANCELLED"] * 2
    assert sorted(cancelled) == ["job-1", "job-2"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_driver_ends_if_its_database_is_deleted(
    home: Path, caplog: pytest.LogCaptureFixture, is_replaced: bool
) -> None:
    scheduler = DoubleScheduler()

    def delete(app: AppDef) -> None:
        for path in (home / "sweeps").glob("sweeps.db*"):
            path.unlink()
        if is_replaced:
            Store().close()

    scheduler.on_schedule = delete
    drive(scheduler, [make_app()])
    [line] = [record.message for record in caplog.records if "was deleted" in record.message]
    assert line.startswith("the database of sweep s was deleted, so its driver ends")


class ClockDouble(DoubleScheduler):
    """Gives all apps the same times, and describes them as they are in ``state``."""

    def __init__(self, submitted: float, ended: float) -> None:
        super().__init__()
        self.submitted = datetime.fromtimestamp(submitted, timezone.utc)
        self.ended = datetime.fromtimestamp(ended, timezone.utc)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return DescribeAppResponse(
            app_id, AppState.SUCCEEDED, submitted=self.submitted, ended=self.ended
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return [
            ListAppResponse(
                i, AppState.SUCCEEDED, name=app.name, submitted=self.submitted, ended=self.ended
            )
            for i, app in self.apps.items()
        ]


def test_the_end_of_an_element_is_the_end_of_its_app_although_no_driver_was_there() -> None:
    now = time.time()
    scheduler = ClockDouble(now - 100, now - 60)
    scheduler.apps["job-x"] = make_app()

    def submitted(store: Store) -> None:
        (element,) = store.elements("s")
        element.state, element.handle = ElementState.RUNNING, "double://test/job-x"
        element.submitted = now - 100
        store.update("s", [element])

    (element,) = drive(scheduler, [make_app()], submitted)
    assert element.submitted is not None
    assert element.ended is not None
    assert element.ended - element.submitted == pytest.approx(40, abs=0.01)


def test_an_interrupted_submission_has_the_times_of_its_app() -> None:
    now = time.time()
    scheduler = ClockDouble(now - 100, now - 60)
    app = make_app()
    app.name = "e-s-0-0"
    scheduler.apps["job-x"] = app
    (element,) = drive(scheduler, [make_app()], interrupted)
    assert element.submitted == pytest.approx(now - 100, abs=0.01)
    assert element.ended == pytest.approx(now - 60, abs=0.01)


@pytest.mark.parametrize("offset", [-1000, 1000])
def test_no_element_ends_before_its_submission_or_in_the_future(offset: int) -> None:
    began = time.time()
    (element,) = drive(ClockDouble(began + offset, began + offset), [make_app()])
    assert element.submitted is not None
    assert element.ended is not None
    assert began <= element.submitted <= element.ended <= time.time()


def test_an_app_may_be_invisible_for_a_time_although_its_submission_took_long() -> None:
    scheduler, clock = DoubleScheduler(), ManualClock()
    describe = scheduler.describe
    polls = []

    def submit_slowly(app: AppDef) -> None:
        clock.sleep(2 * driver._VISIBLE_SECONDS)

    def describe_later(app_id: str) -> DescribeAppResponse | None:
        polls.append(app_id)
        return describe(app_id) if len(polls) > 1 else None

    scheduler.on_schedule = submit_slowly
    scheduler.describe = describe_later  # type: ignore[method-assign]
    assert states(drive(scheduler, [make_app()], clock=clock)) == ["SUCCEEDED"]


class CancelDouble(ArrayDouble):
    """Runs apps until they are cancelled; ``queries`` has the ids of described apps."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[str] = []

    def _state(self) -> AppState:
        return AppState.CANCELLED if self.is_cancelled else AppState.RUNNING

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        self.queries.append(app_id)
        return DescribeAppResponse(app_id, self._state())

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        found = [ListAppResponse(i, self._state(), name=app.name) for i, app in self.apps.items()]
        if self.apps:
            with Store() as store:
                store.cancel("s")
        return found


def test_one_list_shows_the_ends_of_many_cancelled_apps() -> None:
    scheduler = CancelDouble()
    elements = drive(scheduler, [make_app() for _ in range(40)], max_parallel=100)
    assert states(elements) == ["CANCELLED"] * 40
    assert {element.reason for element in elements} == {"cancelled"}
    assert scheduler.queries == []


def test_the_dry_runs_of_an_array_are_made_when_the_scheduler_takes_them() -> None:
    scheduler = LazyDouble()
    assert states(drive(scheduler, [make_app() for _ in range(20)])) == ["SUCCEEDED"] * 20
    assert scheduler.waiting == 1


def test_elements_that_the_scheduler_has_not_taken_are_submitted_later() -> None:
    scheduler = LazyDouble()
    scheduler.capacity = 3
    assert states(drive(scheduler, [make_app() for _ in range(8)])) == ["SUCCEEDED"] * 8
    assert sorted(scheduler.names()) == [f"e-s-{i}-0" for i in range(8)]
    assert scheduler.most_at_once == 3


def test_elements_without_an_id_are_looked_for() -> None:
    class Silent(ArrayDouble):
        def submit_array(self, infos: Any, max_parallel: int | None) -> Iterator[str]:
            submitted = list(super().submit_array(infos, max_parallel))
            return iter(submitted[:1] if len(infos) > 1 else submitted)

    scheduler = Silent()
    assert states(drive(scheduler, [make_app() for _ in range(3)])) == ["SUCCEEDED"] * 3
    assert len(scheduler.apps) == 3


def test_elements_end_although_the_state_of_another_one_is_unknown() -> None:
    class Damaged(DoubleScheduler):
        failures = 0

        def describe(self, app_id: str) -> DescribeAppResponse | None:
            if app_id == "job-0" and self.failures < 20:
                self.failures += 1
                ended.append(sum(count > 1 for count in self.polls.values()))
                notes.append(stores[0].sweep("s").note)
                raise BackendError("its record is damaged")
            return super().describe(app_id)

    ended: list[int] = []
    notes: list[str] = []
    stores: list[Store] = []
    elements = drive(Damaged(), [make_app() for _ in range(4)], stores.append)
    assert states(elements) == ["SUCCEEDED"] * 4
    assert ended[-1] == 3
    unknown = "the state of element 0 (double://test/job-0) is unknown: its record is damaged"
    assert notes == ["", *[unknown] * 19]


def test_the_pause_after_errors_has_a_limit() -> None:
    class Unreachable(LazyDouble):
        def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
            info = super()._submit_dryrun(app, cfg)
            if self.made <= 1_100:
                raise BackendError("unreachable")
            return info

    clock = ManualClock()
    elements = drive(Unreachable(), [make_app() for _ in range(1_100)], clock=clock)
    assert states(elements) == ["SUCCEEDED"] * 1_100
