"""Tests of sweeps in programs that use asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import numbers

import torchx_sweep
from torchx_runner import AsyncRunner
from torchx_specs.errors import BackendError, RequestError
from torchx_sweep import ElementState, statuses


def run_map(out: Path, sets: list[dict[str, Any]], **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        async with AsyncRunner() as runner:
            return await runner.map("comp.py:train", sets, ["--out", str(out)], **options)

    return asyncio.run(main())


def test_map_returns_the_elements_in_the_order_of_the_parameters(out: Path) -> None:
    sets: list[dict[str, Any]] = [{"n": 2}, {"n": 1, "code": 3}, {"n": 0, "lr": 0.5}]
    elements = run_map(out, sets, max_parallel=2)
    assert [element.parameters for element in elements] == sets
    assert [element.state.value for element in elements] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert numbers(out) == [0, 1, 2]


def test_map_reports_all_invalid_sets_and_submits_nothing(out: Path) -> None:
    with pytest.raises(RequestError) as caught:
        run_map(out, [{"n": 1}, {"n": "x"}, {"n": 2}, {"n": 3, "lr": "fast"}])
    message = str(caught.value)
    assert "rows[1]" in message
    assert "rows[3]" in message
    assert "rows[0]" not in message
    assert statuses() == []


@pytest.mark.parametrize("sets", [[], [{}], [{"n": 1}, {}]])
def test_map_without_parameters_is_refused(out: Path, sets: list[dict[str, Any]]) -> None:
    with pytest.raises(RequestError, match="rows has no set of parameters"):
        run_map(out, sets)


def test_cancelling_the_task_of_map_cancels_the_sweep(out: Path) -> None:
    async def main() -> None:
        async with AsyncRunner() as runner:
            sets = [{"n": 1, "sleep": 900}, {"n": 2, "sleep": 900}]
            task = asyncio.ensure_future(
                runner.map("comp.py:train", sets, ["--out", str(out)], max_parallel=1)
            )
            while not numbers(out):
                assert not task.done()
                await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    from torchx_sweep import wait

    [status] = statuses()
    assert wait(status.handle, timeout=300).counts == {ElementState.CANCELLED: 2}
    assert numbers(out) == [1]


def test_a_sweep_that_cannot_be_cancelled_with_the_task_of_map_is_logged(
    out: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handle: str) -> None:
        raise BackendError("the server is down")

    async def main() -> None:
        async with AsyncRunner() as runner:
            task = asyncio.ensure_future(
                runner.map("comp.py:train", [{"n": 1, "sleep": 900}], ["--out", str(out)])
            )
            while not numbers(out):
                assert not task.done()
                await asyncio.sleep(0.05)
            with monkeypatch.context() as patched:
                patched.setattr(torchx_sweep, "cancel", refuse)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    [status] = statuses()
    torchx_sweep.cancel(status.handle)
    assert f"{status.handle} was not cancelled: the server is down" in caplog.text


def test_a_task_that_is_cancelled_during_the_submission_leaves_no_sweep(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()

    async def main() -> None:
        async with AsyncRunner() as runner:
            sweep = runner.runner.sweep

            def slow(*args: Any, **kwargs: Any) -> str:
                entered.set()
                assert release.wait(300)
                return sweep(*args, **kwargs)

            monkeypatch.setattr(runner.runner, "sweep", slow)
            words = ["--out", str(out), "--sleep", "900"]
            task = asyncio.ensure_future(
                runner.sweep("comp.py:train", words, "local_cwd", grid={"n": [1]})
            )
            await asyncio.to_thread(entered.wait, 300)
            task.cancel()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert statuses() == []
