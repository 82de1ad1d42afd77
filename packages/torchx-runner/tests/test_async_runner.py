"""Tests of ``AsyncRunner``: its methods, cancellation, a thousand waits, logs."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patience import PATIENCE
from torchx_runner import AsyncRunner, Runner, WaitTimeoutError
from torchx_runner.async_runner.api import iterate
from torchx_specs import AppDef, AppState, UnknownSchedulerException
from torchx_specs.errors import BackendError
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.closing import ClosedError


@pytest.fixture
def blocking(fake_scheduler_class: Any) -> Any:
    """Return a scheduler whose submissions wait for an event, and that counts its queries."""

    class Blocking(fake_scheduler_class):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("test")
            self.entered = threading.Event()
            self.release = threading.Event()
            self.release.set()
            self.described = self.listed = 0
            self.threads = 0
            self.ids = itertools.count(1)
            self.lists = True

        def schedule(self, dryrun_info: Any) -> str:
            self.entered.set()
            assert self.release.wait(60)
            app_id = f"app-{next(self.ids)}"  # unique, even if other apps were deleted before
            self.states[app_id] = AppState.RUNNING
            return app_id

        def describe(self, app_id: str) -> DescribeAppResponse | None:
            self.described += 1
            self.threads = max(self.threads, threading.active_count())
            found: DescribeAppResponse | None = super().describe(app_id)
            return found

        def list(self, cfg: Any = None) -> Any:
            self.listed += 1
            if not self.lists:
                raise BackendError("this scheduler cannot list")
            return [ListAppResponse(app_id, state) for app_id, state in self.states.items()]

    return Blocking()


def make(scheduler: Any, **options: Any) -> AsyncRunner:
    return AsyncRunner(Runner("test", {"fake": lambda name, **params: scheduler}), **options)


def run(main: Callable[[AsyncRunner], Any], scheduler: Any, **options: Any) -> Any:
    async def with_runner() -> Any:
        async with make(scheduler, **options) as runner:
            return await main(runner)

    return asyncio.run(with_runner())


def test_every_public_method_of_the_runner_is_there() -> None:
    left_out = {"stop"}  # deprecated
    # Only torchx_sweep and the command call these.
    left_out |= {"schedule_many", "scheduler", "component_defaults", "list_newest"}
    names = {n for n, _ in inspect.getmembers(Runner, inspect.isfunction) if not n.startswith("_")}
    assert names - set(dir(AsyncRunner)) == left_out
    for name in ("status", "dryrun", "run_component", "schedule", "delete", "list"):
        method = getattr(AsyncRunner, name)
        assert inspect.iscoroutinefunction(method)
        assert method.__doc__ == getattr(Runner, name).__doc__


def test_verbs_return_what_the_runner_returns(blocking: Any, app: AppDef) -> None:
    async def main(runner: AsyncRunner) -> None:
        handle = await runner.run(app, "fake")
        status = await runner.status(handle)
        assert status is not None
        assert (await runner.dryrun(app, "fake")).app is not None
        assert [found.app_handle for found in await runner.list("fake")] == [handle]
        assert await runner.describe(handle) is not None
        await runner.delete(handle)
        assert await runner.status(handle) is None
        with pytest.raises(UnknownSchedulerException):
            await runner.run(app, "fak")

    run(main, blocking)
    assert blocking.closed == 1


# -- cancelled calls


def test_a_cancelled_submission_that_has_begun_is_deleted(blocking: Any, app: AppDef) -> None:
    blocking.release.clear()

    async def main(runner: AsyncRunner) -> None:
        task = asyncio.create_task(runner.run(app, "fake"))
        await asyncio.to_thread(blocking.entered.wait, 60)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()  # a second cancellation must not interrupt the deletion
        assert not task.done()
        blocking.release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert blocking.states == {}
        assert [call[0] for call in blocking.calls].count("delete") == 1

    run(main, blocking)


def test_a_cancelled_submission_that_has_not_begun_never_begins(blocking: Any, app: AppDef) -> None:
    blocking.release.clear()

    async def main(runner: AsyncRunner) -> None:
        first = asyncio.create_task(runner.run(app, "fake"))
        await asyncio.to_thread(blocking.entered.wait, 60)
        second = asyncio.create_task(runner.run(app, "fake"))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        blocking.release.set()
        await first
        assert len(blocking.states) == 1

    run(main, blocking, threads=1)


def test_cancellation_at_random_moments_leaves_no_app_without_its_handle(
    blocking: Any, app: AppDef
) -> None:
    chosen = random.Random(7)  # noqa: S311
    delays = [chosen.uniform(0, 0.02) for _ in range(60)]

    async def main(runner: AsyncRunner) -> None:
        async def submit(delay: float) -> str | None:
            task = asyncio.create_task(runner.run(app, "fake"))
            await asyncio.sleep(delay)
            task.cancel()
            try:
                return await task
            except asyncio.CancelledError:
                return None

        handles = await asyncio.gather(*map(submit, delays))
        returned = {handle.rpartition("/")[2] for handle in handles if handle is not None}
        assert returned == set(blocking.states)

    run(main, blocking, threads=4)


def test_a_submission_that_fails_after_a_cancellation_deletes_nothing(
    blocking: Any, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking.release.clear()

    async def main(runner: AsyncRunner) -> None:
        def refuse(info: Any) -> str:
            blocking.entered.set()
            assert blocking.release.wait(60)
            raise BackendError("refused")

        monkeypatch.setattr(blocking, "schedule", refuse)
        task = asyncio.create_task(runner.run(app, "fake"))
        await asyncio.to_thread(blocking.entered.wait, 60)
        task.cancel()
        blocking.release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "delete" not in [call[0] for call in blocking.calls]

    run(main, blocking)


def test_an_app_that_cannot_be_deleted_after_a_cancellation_is_logged(
    blocking: Any,
    app: AppDef,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocking.release.clear()

    def refuse(app_id: str) -> None:
        raise BackendError("the server is down")

    async def main(runner: AsyncRunner) -> None:
        monkeypatch.setattr(blocking, "delete", refuse)
        task = asyncio.create_task(runner.run(app, "fake"))
        await asyncio.to_thread(blocking.entered.wait, 60)
        task.cancel()
        blocking.release.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main, blocking)
    [record] = caplog.records
    assert record.getMessage() == (
        "the task was cancelled, but fake://test/app-1 was not deleted: the server is down"
    )


# -- waiting for apps


def start_apps(scheduler: Any, count: int) -> list[str]:
    scheduler.states.update({f"app-{i}": AppState.RUNNING for i in range(count)})
    return [f"fake://test/app-{i}" for i in range(count)]


def test_a_thousand_waits_use_few_threads_and_few_queries(blocking: Any) -> None:
    handles = start_apps(blocking, 1000)

    async def main(runner: AsyncRunner) -> None:
        before = threading.active_count()
        waits = [asyncio.create_task(runner.wait(handle, 0.2)) for handle in handles]
        while blocking.listed < 4:
            await asyncio.sleep(0.01)
        assert not any(wait.done() for wait in waits)
        # On a loaded machine, some waits become due apart from the others, and are queried alone.
        assert blocking.described < 200
        for app_id in blocking.states:
            blocking.states[app_id] = AppState.SUCCEEDED
        statuses = await asyncio.gather(*waits)
        assert {status.state for status in statuses if status} == {AppState.SUCCEEDED}
        assert 1000 <= blocking.described < 1400
        assert blocking.threads - before <= 8

    run(main, blocking, threads=8)


def test_waits_of_a_scheduler_that_cannot_list_query_each_app(blocking: Any) -> None:
    handles = start_apps(blocking, 40)
    blocking.lists = False

    async def main(runner: AsyncRunner) -> None:
        waits = [asyncio.create_task(runner.wait(handle, 0.05)) for handle in handles]
        while blocking.described < 80:
            await asyncio.sleep(0.01)
        for app_id in blocking.states:
            blocking.states[app_id] = AppState.FAILED
        statuses = await asyncio.gather(*waits)
        assert {status.state for status in statuses if status} == {AppState.FAILED}

    run(main, blocking)


def test_a_wait_ends_at_a_state_at_its_timeout_and_for_a_missing_app(blocking: Any) -> None:
    [handle] = start_apps(blocking, 1)

    async def main(runner: AsyncRunner) -> None:
        status = await runner.wait(handle, 0.05, until=AppState.RUNNING)
        assert status is not None
        assert status.state == AppState.RUNNING
        with pytest.raises(WaitTimeoutError) as caught:
            await runner.wait(handle, 0.05, timeout=0.1)
        assert caught.value.status.state == AppState.RUNNING
        assert await runner.wait("fake://test/none", 0.05) is None

    run(main, blocking)


def test_an_error_of_the_scheduler_ends_the_wait(
    blocking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [handle] = start_apps(blocking, 1)

    def fails(app_id: str) -> Any:
        raise BackendError("down")

    async def main(runner: AsyncRunner) -> None:
        monkeypatch.setattr(blocking, "describe", fails)
        with pytest.raises(BackendError, match="down"):
            await runner.wait(handle, 0.05)

    run(main, blocking)


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_timeout_error_of_the_scheduler_is_not_the_timeout_of_the_wait(
    blocking: Any, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    [handle] = start_apps(blocking, 1)
    describe = blocking.describe

    def fails_once(app_id: str) -> Any:
        monkeypatch.setattr(blocking, "describe", describe)
        raise TimeoutError("the server took too long")

    async def main(runner: AsyncRunner) -> None:
        monkeypatch.setattr(blocking, "describe", fails_once)
        with pytest.raises(TimeoutError, match="the server took too long"):
            await runner.wait(handle, 0.05, timeout=timeout)

    run(main, blocking)


def test_a_cancelled_wait_is_polled_no_longer(blocking: Any) -> None:
    [handle] = start_apps(blocking, 1)

    async def main(runner: AsyncRunner) -> None:
        wait = asyncio.create_task(runner.wait(handle, 0.05, timeout=60))
        while not blocking.described:
            await asyncio.sleep(0.01)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        described = blocking.described
        await asyncio.sleep(0.2)
        assert blocking.described <= described + 1  # one request may be in progress

    run(main, blocking)


def test_closing_cancels_the_waits(blocking: Any) -> None:
    [handle] = start_apps(blocking, 1)

    async def main() -> None:
        runner = make(blocking)
        wait = asyncio.create_task(runner.wait(handle, 0.05))
        while not blocking.described:
            await asyncio.sleep(0.01)
        await runner.close()
        with pytest.raises(asyncio.CancelledError):
            await wait

    asyncio.run(main())


def test_closing_in_another_thread_ends_the_waits(blocking: Any) -> None:
    [handle] = start_apps(blocking, 1)

    async def main(runner: AsyncRunner) -> None:
        wait = asyncio.create_task(runner.wait(handle, 0.05))
        while not blocking.described:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(runner.runner.close)
        with pytest.raises(ClosedError):
            await asyncio.wait_for(wait, PATIENCE)

    run(main, blocking)


# -- logs


def test_log_lines_are_an_asynchronous_iterator(blocking: Any, app: AppDef) -> None:
    blocking.log = [f"line {i}\n" for i in range(5000)]

    async def main(runner: AsyncRunner) -> None:
        handle = await runner.run(app, "fake")
        lines = [line async for line in runner.log_lines(handle, "main", should_tail=True)]
        assert lines == blocking.log
        assert blocking.calls[-1][0] == "log_iter"
        with pytest.raises(BackendError):
            async for _ in iterate(lambda: failing()):
                pass

    def failing() -> Iterator[str]:
        yield "first\n"
        raise BackendError("lost")

    run(main, blocking)


def test_a_log_that_is_left_early_ends_its_thread() -> None:
    produced = threading.Event()
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                produced.set()
                yield 1
                time.sleep(0.001)
        finally:
            ended.set()

    async def main() -> None:
        items = iterate(endless)
        async for _ in items:
            break
        await items.aclose()  # type: ignore[attr-defined]
        assert await asyncio.to_thread(ended.wait, 60)

    asyncio.run(main())
    assert produced.is_set()


def test_asyncio_is_not_imported_with_the_package() -> None:
    import subprocess
    import sys

    code = "import sys, torchx_runner.api; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
