"""Tests of listing the apps of several schedulers at the same time, some of which hang."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from torchx_runner.submissions import all_schedulers
from torchx_runner.submissions.all_schedulers import NoAnswerError, list_all
from torchx_specs import AppState
from torchx_specs.schedulers import ListAppResponse

NAMES = [f"scheduler{k}" for k in range(8)]


def test_all_schedulers_are_queried_at_the_same_time() -> None:
    barrier = threading.Barrier(len(NAMES))

    def list_one(name: str) -> list[ListAppResponse]:
        barrier.wait(60)  # fails if a query begins only after the end of another one
        return [ListAppResponse(name, AppState.RUNNING)]

    listed = list_all(NAMES, list_one, timeout=60)
    assert list(listed.apps) == NAMES
    assert listed.errors == {}


@pytest.mark.parametrize("hanging", [1, 3, 8])
def test_schedulers_that_hang_cost_the_time_limit_once(
    hanging: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake clock advances only while ``list_all`` waits, so a slow machine changes nothing."""
    now = [100.0]
    answered = threading.Semaphore(0)
    release = threading.Event()

    class Answers:
        def __init__(self) -> None:
            self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def put(self, item: Any) -> None:
            self.items.put(item)
            answered.release()

        def get(self, timeout: float) -> Any:
            try:
                item = self.items.get_nowait()
            except queue.Empty:
                now[0] += timeout
                raise
            now[0] += timeout / 4  # the time that this answer took
            return item

    def list_one(name: str) -> list[ListAppResponse]:
        if name in NAMES[:hanging]:
            release.wait(60)
        return []

    class Queues:
        SimpleQueue, Empty = Answers, queue.Empty

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(all_schedulers, "time", Clock)
    monkeypatch.setattr(all_schedulers, "queue", Queues)
    started = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        started(thread)
        if thread.name.removeprefix("list ") in NAMES[hanging:]:
            assert answered.acquire(timeout=60)

    monkeypatch.setattr(threading.Thread, "start", start)
    try:
        listed = list_all(NAMES, list_one, timeout=10)
    finally:
        release.set()
    assert now[0] == pytest.approx(110)
    assert list(listed.apps) == NAMES[hanging:]
    assert list(listed.errors) == NAMES[:hanging]
    assert {type(error) for error in listed.errors.values()} == {NoAnswerError}
