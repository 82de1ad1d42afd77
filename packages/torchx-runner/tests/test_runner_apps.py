"""Tests of the runner: submission, submitted apps, logs, waiting, schedulers, options as text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from patience import PATIENCE
from torchx_runner import Runner, WaitTimeoutError, get_runner, wait_for_state
from torchx_specs import (
    AppDef,
    AppState,
    InvalidRunConfigException,
    MalformedAppHandleException,
    PluginError,
    RequestError,
    Role,
    TorchXError,
    UnknownAppException,
    UnknownSchedulerException,
)
from torchx_specs.hookspecs import SchedulerPlugin
from torchx_specs.model.status import AppStatus
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.closing import ClosedError
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery

NewRole = Callable[..., Role]


def submitted(runner: Runner, app: AppDef) -> str:
    return runner.run(app, "fake")


# -- submitting apps


def test_run_submits_and_returns_the_handle(runner: Runner, scheduler: Any, app: AppDef) -> None:
    assert runner.run(app, "fake", {"queue": "q"}) == "fake://test/app1"
    assert scheduler.calls[-1] == ("schedule", {"app": "job", "queue": "q"})


def test_run_with_dryrun_submits_nothing(runner: Runner, scheduler: Any, app: AppDef) -> None:
    info: Any = runner.run(app, "fake", dryrun=True)
    assert info.request["app"] == "job"
    assert [call[0] for call in scheduler.calls] == ["submit_dryrun"]


def test_dryrun_is_keyword_only(runner: Runner, app: AppDef) -> None:
    with pytest.raises(TypeError):
        runner.run(app, "fake", None, None, None, True)  # type: ignore[call-overload]


def test_schedule_submits_a_changed_request(runner: Runner, scheduler: Any, app: AppDef) -> None:
    info = runner.dryrun(app, "fake")
    info.request["queue"] = "changed"
    runner.schedule(info)
    assert scheduler.calls[-1] == ("schedule", {"app": "job", "queue": "changed"})


def test_schedule_rejects_a_dry_run_of_a_scheduler(
    runner: Runner, scheduler: Any, app: AppDef
) -> None:
    with pytest.raises(RequestError, match=r"Runner\.dryrun"):
        runner.schedule(scheduler.submit_dryrun(app, {}))


def test_session_name_is_part_of_the_handle(scheduler: Any, app: AppDef) -> None:
    factories = {"fake": lambda name, **kw: scheduler}
    assert submitted(Runner("", factories), app) == "fake:///app1"
    assert Runner("", factories).name() == ""


# -- status, describe, cancel, delete


def test_status_is_the_description_of_the_scheduler(runner: Runner, app: AppDef) -> None:
    status = runner.status(submitted(runner, app))
    assert status is not None
    assert (status.state, status.num_restarts, status.msg, status.ui_url) == (
        AppState.RUNNING,
        2,
        "as told",
        "http://ui",
    )


def test_missing_app_has_no_status(runner: Runner, scheduler: Any, app: AppDef) -> None:
    handle = submitted(runner, app)
    scheduler.states.clear()
    assert runner.status(handle) is None
    assert runner.describe(handle) is None
    assert runner.wait(handle) is None


def test_session_in_a_handle_is_ignored(runner: Runner, app: AppDef) -> None:
    submitted(runner, app)
    assert runner.status("fake://somebody-else/app1") is not None
    assert runner.status("fake:///app1") is not None


@pytest.mark.parametrize(
    "ask",
    ["status", "wait", "cancel", "delete", "describe", "describe_native"],
)
def test_malformed_handle_is_an_error(runner: Runner, ask: str) -> None:
    with pytest.raises(MalformedAppHandleException):
        getattr(runner, ask)("no handle")
    with pytest.raises(UnknownSchedulerException, match="did you mean 'fake'"):
        getattr(runner, ask)("fke://test/app1")


def test_describe_returns_the_submitted_app(runner: Runner, app: AppDef) -> None:
    handle = submitted(runner, app)
    described = runner.describe(handle)
    assert described is not None
    assert (described.name, described.roles[0].args) == ("job", ["hi"])


def test_describe_of_another_app_queries_the_scheduler(runner: Runner, scheduler: Any) -> None:
    scheduler.states["other"] = AppState.SUCCEEDED
    described = runner.describe("fake://x/other")
    assert described is not None
    assert (described.name, described.roles[0].name, described.metadata) == (
        "other",
        "seen",
        {"m": "1"},
    )


def test_describe_native(runner: Runner, app: AppDef) -> None:
    info = runner.describe_native(submitted(runner, app))
    assert info is not None
    assert info.request == {"native": "app1"}
    assert runner.describe_native("fake://x/nope") is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (AppState.RUNNING, True),
        (AppState.PENDING, True),
        (AppState.UNKNOWN, True),
        (AppState.SUCCEEDED, False),
        (AppState.FAILED, False),
        (None, False),
    ],
)
def test_cancel_ignores_an_ended_app(
    runner: Runner, scheduler: Any, state: AppState | None, expected: bool
) -> None:
    if state is not None:
        scheduler.states["a"] = state
    runner.cancel("fake://test/a")
    assert (("cancel", "a") in scheduler.calls) is expected


def test_cancel_delete_and_log_lines_query_the_app_once(
    runner: Runner, scheduler: Any, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submitted(runner, app)
    describe, queries = scheduler.describe, []
    monkeypatch.setattr(scheduler, "describe", lambda a: queries.append(a) or describe(a))
    for call in (runner.cancel, runner.exists, runner.delete, runner.cancel, runner.exists):
        call(handle)
    assert queries == ["app1"] * 5


def test_stop_is_a_deprecated_name_of_cancel(runner: Runner, scheduler: Any, app: AppDef) -> None:
    handle = submitted(runner, app)
    with pytest.warns(PendingDeprecationWarning, match="cancel"):
        runner.stop(handle)
    assert ("cancel", "app1") in scheduler.calls


def test_delete_removes_an_app(runner: Runner, scheduler: Any, app: AppDef) -> None:
    handle = submitted(runner, app)
    runner.delete(handle)
    assert runner.describe(handle) is None
    runner.delete(handle)
    assert scheduler.calls.count(("delete", "app1")) == 1


def test_list_gives_handles_of_this_session(runner: Runner, scheduler: Any, app: AppDef) -> None:
    submitted(runner, app)
    [listed] = runner.list("fake", {"queue": "q"})
    assert (listed.app_id, listed.app_handle) == ("app1", "fake://test/app1")
    assert scheduler.calls[-1] == ("list", {"queue": "q"})


def test_list_of_an_older_scheduler_is_called_without_options(
    app: AppDef, fake_scheduler_class: Any
) -> None:
    class Older(fake_scheduler_class):  # type: ignore[misc]
        def list(self) -> list[Any]:
            return super().list()  # type: ignore[no-any-return]

    runner = Runner("t", {"fake": Older})
    submitted(runner, app)
    assert [a.app_id for a in runner.list("fake")] == ["app1"]


# -- logs


def test_log_lines_returns_the_iterable_of_the_scheduler(
    runner: Runner, scheduler: Any, app: AppDef
) -> None:
    handle = submitted(runner, app)
    since, until = datetime(2026, 1, 1), datetime(2026, 1, 2)
    lines = runner.log_lines(handle, "main", 3, "x", since, until, True, Stream.STDERR)
    assert lines is scheduler.log
    assert scheduler.calls[-1] == (
        ("log_iter", "app1", "main", 3, "x", since, until, True, Stream.STDERR)
    )


def test_log_lines_of_an_unknown_app_are_an_error(runner: Runner) -> None:
    with pytest.raises(UnknownAppException, match="fake://test/nope"):
        runner.log_lines("fake://test/nope", "main")


def test_log_blocks_are_read_by_the_scheduler(
    runner: Runner, scheduler: Any, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submitted(runner, app)
    calls = []

    def read_many(*args: Any) -> Any:
        calls.append(args)
        return iter([(("main", 0), ["ax\n", "b\n"]), (("main", 0), error)])

    error = RuntimeError("no log")
    monkeypatch.setattr(type(scheduler), "app_logs", SimpleNamespace(read_many=read_many))
    since, until = datetime(2026, 1, 1), datetime(2026, 1, 2)
    replicas = [("main", 0)]
    limits = {"since": since, "until": until, "should_tail": True, "streams": Stream.STDERR}
    blocks = runner.log_blocks(handle, replicas, regex="x", **limits)
    (_, lines), failure = blocks
    assert not isinstance(lines, Exception)
    assert list(lines) == ["ax\n"]
    assert failure == (("main", 0), error)
    # The runner matches the lines, so that a signal can interrupt the search.
    assert calls == [("app1", replicas, LogQuery(**limits))]


def test_log_blocks_of_a_scheduler_without_its_own_reads_each_log(
    runner: Runner, app: AppDef
) -> None:
    blocks = list(runner.log_blocks(submitted(runner, app), [("main", 0), ("main", 1)]))
    for replica in [("main", 0), ("main", 1)]:
        lines = [line for r, block in blocks if r == replica for line in block]
        assert lines == ["one\n", "two\n"]


class LinesRunner(Runner):
    """A runner of an older client: it overrides ``log_lines`` alone."""

    def log_lines(self, app_handle: str, role_name: str, k: int = 0, *args: Any, **kw: Any) -> Any:
        return [f"{role_name} {k} {args}\n"]


class LinesMixin:
    def log_lines(self, *args: Any, **kwargs: Any) -> Any:
        return ["mixin\n"]


class MixedRunner(LinesMixin, Runner): ...


class BlocksRunner(LinesRunner):
    """A runner that overrides both ``log_lines`` and ``log_blocks``."""

    def log_blocks(self, *args: Any, **kwargs: Any) -> Any:
        return iter([(("main", 0), ["block\n"])])


@pytest.mark.parametrize(
    ("runner_class", "expected"),
    [
        (LinesRunner, "main 0 (None, None, None, False)\n"),
        (MixedRunner, "mixin\n"),
        (BlocksRunner, "block\n"),
    ],
)
def test_log_blocks_respects_overridden_log_methods(
    runner_class: type[Runner], expected: str
) -> None:
    blocks = runner_class("test", {}).log_blocks("fake://test/a", [("main", 0)], regex="m")
    assert [line for _, block in blocks for line in block] == [expected]


# -- waiting for apps


class Waits:
    """Waits as ``Runner.wait`` does, with a clock that only pauses advance; records the pauses."""

    def __init__(self, runner: Runner, scheduler: Any) -> None:
        self.slept: list[float] = []
        self._runner = runner
        self._scheduler = scheduler

    def __call__(
        self, *states: AppState, wait_interval: float = 10, **options: Any
    ) -> AppStatus | None:
        handle = states_of(self._scheduler, *states)
        pause = wait_for_state.pause_between_polls(
            self._scheduler, "a", wait_interval, sleep=self.slept.append
        )
        return wait_for_state.wait_for(
            handle, lambda: self._runner.status(handle), pause, clock=self.elapsed, **options
        )

    def elapsed(self) -> float:
        return sum(self.slept)


@pytest.fixture
def wait(runner: Runner, scheduler: Any) -> Waits:
    return Waits(runner, scheduler)


def states_of(scheduler: Any, *states: AppState) -> str:
    scheduler.states["a"] = list(states)
    return "fake://test/a"


RUNNING, FAILED, UNKNOWN = AppState.RUNNING, AppState.FAILED, AppState.UNKNOWN


def test_wait_returns_the_terminal_status(runner: Runner, scheduler: Any) -> None:
    status = runner.wait(states_of(scheduler, AppState.PENDING, RUNNING, FAILED))
    assert status is not None
    assert status.state == FAILED
    assert scheduler.states["a"] == [FAILED]


def test_pauses_grow_up_to_the_interval(wait: Waits) -> None:
    wait(*[RUNNING] * 30, FAILED, wait_interval=2)
    assert len(wait.slept) == 30
    assert wait.slept[0] == wait_for_state.FIRST_PAUSE
    assert wait.slept == sorted(wait.slept)
    assert wait.slept[-1] == 2


def test_short_interval_is_respected(wait: Waits) -> None:
    wait(*[RUNNING] * 5, FAILED, wait_interval=0.01)
    assert set(wait.slept) == {0.01}


def test_wait_raises_after_the_timeout(wait: Waits) -> None:
    with pytest.raises(WaitTimeoutError, match="is RUNNING after 5 s") as error:
        wait(RUNNING, timeout=5)
    assert error.value.status.state == RUNNING
    assert isinstance(error.value, TimeoutError)
    assert wait.elapsed() == pytest.approx(5)


def test_wait_with_timeout_zero_polls_once(
    runner: Runner, scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "wait", lambda *args: pytest.fail("waited"))
    with pytest.raises(WaitTimeoutError):
        runner.wait(states_of(scheduler, RUNNING), timeout=0)
    assert runner.wait(states_of(scheduler, FAILED), timeout=0) is not None


@pytest.mark.parametrize(
    ("states", "until", "expected"),
    [
        ([AppState.PENDING, RUNNING, FAILED], RUNNING, RUNNING),
        ([AppState.PENDING, AppState.SUCCEEDED], RUNNING, AppState.SUCCEEDED),
        ([UNKNOWN, AppState.PENDING, RUNNING], RUNNING, RUNNING),
        ([AppState.SUBMITTED, AppState.PENDING], AppState.SUBMITTED, AppState.SUBMITTED),
        ([RUNNING, FAILED], AppState.SUCCEEDED, FAILED),
    ],
)
def test_wait_returns_at_the_requested_state(
    runner: Runner, scheduler: Any, states: list[AppState], until: AppState, expected: AppState
) -> None:
    status = runner.wait(states_of(scheduler, *states), until=until)
    assert status is not None
    assert status.state == expected


def test_unknown_state_is_logged_once(wait: Waits, caplog: pytest.LogCaptureFixture) -> None:
    wait(UNKNOWN, RUNNING, UNKNOWN, UNKNOWN, FAILED)
    assert caplog.text.count("is in state UNKNOWN (as told)") == 1


def test_unknown_state_without_a_message(caplog: pytest.LogCaptureFixture) -> None:
    found = [AppStatus(FAILED), AppStatus(UNKNOWN, msg="<NONE>")]
    wait_for_state.wait_for("a://b/c", found.pop, lambda remaining: None)
    assert "is in state UNKNOWN (no reason given)" in caplog.text


def test_scheduler_that_can_wait_is_not_polled(fake_scheduler_class: Any) -> None:
    class Telling(fake_scheduler_class):  # type: ignore[misc]
        features = SchedulerFeatures(watch=True)

        def wait(self, app_id: str, timeout: float) -> bool:
            self.calls.append(("wait", app_id, timeout))
            return True

    scheduler = Telling("t")
    runner = Runner("t", {"fake": lambda name, **kw: scheduler})
    wait = Waits(runner, scheduler)
    wait(RUNNING, RUNNING, FAILED, wait_interval=7)
    assert scheduler.calls == [("wait", "a", 7)] * 2
    assert wait.slept == []


# -- schedulers


def test_scheduler_is_created_once_on_first_use(app: AppDef, fake_scheduler_class: Any) -> None:
    made: list[Any] = []

    def factory(session_name: str, **params: object) -> Any:
        made.append((session_name, params))
        return fake_scheduler_class(session_name)

    runner = Runner("s", {"fake": factory}, scheduler_params={"a": 1})
    assert runner.scheduler_backends() == ["fake"]
    assert made == []
    submitted(runner, app)
    runner.scheduler_run_opts("fake")
    assert made == [("s", {"a": 1})]


def test_threads_share_one_scheduler(fake_scheduler_class: Any) -> None:
    made: list[Any] = []

    def factory(session_name: str, **params: object) -> Any:
        time.sleep(0.01)
        made.append(fake_scheduler_class(session_name))
        return made[-1]

    runner = Runner("s", {"fake": factory})
    threads = [threading.Thread(target=runner._scheduler, args=("fake",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_environment_variables_are_not_passed_to_factories(
    fake_scheduler_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_FOO", "1")
    made: Any = Runner("s", {"fake": fake_scheduler_class})._scheduler("fake")
    assert made.params == {}


def test_installed_schedulers_are_the_default(
    plugins: Any, app: AppDef, fake_scheduler_class: Any
) -> None:
    plugins.add(
        "torchx_schedulers",
        SchedulerPlugin("fake", fake_scheduler_class),
        SchedulerPlugin("absent", "no.such.module:create"),
    )
    with get_runner(a=1) as runner:
        assert runner.name() == "torchx"
        assert runner.scheduler_backends() == ["fake", "absent"]
        assert submitted(runner, app) == "fake://torchx/app1"
        assert runner._scheduler("fake").params == {"a": 1}  # type: ignore[attr-defined]
        with pytest.raises(PluginError, match=r"scheduler 'absent' of acme 1\.0 cannot be loaded"):
            runner.scheduler_run_opts("absent")
    assert runner._scheduler("fake").closed == 1  # type: ignore[attr-defined]


def test_conflicting_scheduler_names_are_an_error(plugins: Any, app: AppDef) -> None:
    plugins.add("torchx_schedulers", SchedulerPlugin("fake", "a:b"), distribution="one")
    plugins.add("torchx_schedulers", SchedulerPlugin("fake", "c:d"), distribution="two")
    with pytest.raises(PluginError, match=r"'fake' is given by (one|two) 1\.0 and (one|two) 1\.0"):
        get_runner().dryrun(app, "fake")


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (lambda name, **kw: 1 / 0, "cannot be created: ZeroDivisionError: division by zero"),
        (lambda name, **kw: None, "its factory returned None"),
        (lambda: None, "cannot be created: TypeError"),
    ],
)
def test_failing_factory_is_an_error_with_its_distribution(
    plugins: Any, app: AppDef, factory: Any, text: str
) -> None:
    plugins.add("torchx_schedulers", SchedulerPlugin("fake", factory))
    with pytest.raises(PluginError) as error:
        get_runner().dryrun(app, "fake")
    assert "scheduler 'fake' of acme 1.0" in str(error.value)
    assert text in str(error.value)


def test_exception_of_a_given_factory_is_passed_on(app: AppDef) -> None:
    with pytest.raises(ZeroDivisionError):
        Runner("t", {"fake": lambda name, **kw: 1 / 0}).dryrun(app, "fake")  # type: ignore[dict-item]


def test_name_of_the_session_is_deprecated() -> None:
    with pytest.warns(FutureWarning, match="get_runner"):
        assert get_runner("mine").name() == "mine"


def test_close_closes_every_created_scheduler(fake_scheduler_class: Any) -> None:
    class Stuck(fake_scheduler_class):  # type: ignore[misc]
        def close(self) -> None:
            raise TorchXError("stuck")

    runner = Runner(
        "t", {"a": Stuck, "b": fake_scheduler_class, "c": lambda name, **kw: pytest.fail("made")}
    )
    runner._scheduler("a")
    used: Any = runner._scheduler("b")
    with pytest.raises(TorchXError, match="stuck"):
        runner.close()
    assert used.closed == 1


def test_close_ends_the_waits_for_a_scheduler_whose_close_does_not(
    fake_scheduler_class: Any,
) -> None:
    class Older(fake_scheduler_class):  # type: ignore[misc]
        def close(self) -> None:
            pass

    runner = Runner("t", {"fake": Older})
    used: Any = runner._scheduler("fake")
    handle = states_of(used, RUNNING)
    polled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(runner.wait, handle, 0.05, observe=lambda _: polled.set())
        assert polled.wait(PATIENCE)
        runner.close()
        try:
            with pytest.raises(ClosedError, match="closed"):
                waiter.result(PATIENCE)
        finally:
            used.states["a"] = AppState.SUCCEEDED  # if the test fails, the thread ends, too


def test_close_ends_following_before_the_next_replica(fake_scheduler_class: Any) -> None:
    runner = Runner("t", {"fake": fake_scheduler_class})
    handle = states_of(runner._scheduler("fake"), RUNNING)

    def replicas() -> Iterator[tuple[str, int]]:
        yield "main", 0
        runner.close()
        yield "main", 1

    blocks = runner.log_blocks(handle, replicas(), should_tail=True)
    assert {replica for replica, _ in blocks} == {("main", 0)}


def test_context_manager_closes_and_passes_exceptions_on(fake_scheduler_class: Any) -> None:
    runner = Runner("t", {"fake": fake_scheduler_class})
    used: Any = runner._scheduler("fake")
    with pytest.raises(KeyError), runner:
        raise KeyError
    assert used.closed == 1


# -- options as text


def test_cfg_from_str(runner: Runner) -> None:
    assert runner.cfg_from_str("fake", "queue=a,priority=3", "queue=b,job_tags=x;y") == {
        "queue": "b",
        "priority": 3,
        "job_tags": ["x", "y"],
    }
    assert runner.cfg_from_str("fake") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quue=a", "did you mean 'queue'"),
        ("priority=high", "priority: `high` is not a valid int"),
        ("queue", "is not of the form key=value"),
    ],
)
def test_cfg_from_str_rejects_wrong_options(runner: Runner, text: str, message: str) -> None:
    with pytest.raises(InvalidRunConfigException) as error:
        runner.cfg_from_str("fake", text)
    assert message in str(error.value)


def test_repr_names_the_session(runner: Runner) -> None:
    assert repr(runner).startswith("Runner(name=test, schedulers=")
