"""Tests of ``AsyncRunner`` with local jobs: of random cancellations, many waits, and a log."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from torchx_runner import AsyncRunner
from torchx_specs import AppDef, Resource, Role


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def app(name: str, *argv: str) -> AppDef:
    role = Role("main", image="", entrypoint=argv[0], args=[*argv[1:]], resource=Resource(1, 0, 64))
    return AppDef(name, roles=[role])


def test_cancelled_submissions_leave_no_apps() -> None:
    chosen = random.Random(3)  # noqa: S311

    async def submit(runner: AsyncRunner, number: int) -> str | None:
        job = app(f"job-{number}", "sleep", "86400")
        task = asyncio.create_task(runner.run(job, "local_cwd"))
        await asyncio.sleep(chosen.uniform(0, 0.3))
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None

    async def main() -> None:
        async with AsyncRunner() as runner:
            handles = await asyncio.gather(*(submit(runner, number) for number in range(24)))
            returned = {handle for handle in handles if handle is not None}
            listed = await runner.list("local_cwd")
            assert {found.app_handle for found in listed} == returned
            for handle in returned:
                await runner.delete(handle)

    asyncio.run(main())
