"""Tests of listing the apps of several schedulers at the same time, some of which hang."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

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
def test_schedulers_that_hang_cost_the_time_limit_once(hanging: int) -> None:
    """The fake clock advances only while ``list_all`` waits, so a slow machine changes nothing."""
    now = [100.0]
    release = threading.Event()

    class Answers(queue.SimpleQueue[Any]):
        expected = len(NAMES) - hanging

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert timeout is not None
            if not self.expected:
                now[0] += timeout
                raise queue.Empty
            self.expected -= 1
            now[0] += timeout / 4  # the time that this answer took
            return super().get()

    def list_one(name: str) -> list[ListAppResponse]:
        if name in NAMES[:hanging]:
            release.wait()
        if name == NAMES[-1]:
            raise OSError("wires cut")
        return []

    listed = list_all(NAMES, list_one, timeout=10, clock=lambda: now[0], answers=Answers())
    release.set()
    assert now[0] == pytest.approx(110)
    assert list(listed.apps) == NAMES[hanging:-1]
    assert {name: str(error) for name, error in listed.errors.items()} == {
        NAMES[-1]: "wires cut",
        **dict.fromkeys(NAMES[:hanging], "no answer within 10 s"),
    }
    assert isinstance(listed.errors[NAMES[0]], NoAnswerError)


def test_the_first_answer_shortens_the_wait_for_the_others() -> None:
    """The first answer takes 3 s on the fake clock, and the second one never comes."""
    now = [100.0]
    release = threading.Event()

    class Answers(queue.SimpleQueue[Any]):
        answered = False

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert timeout is not None
            now[0] += timeout if self.answered else 3.0
            if self.answered:
                raise queue.Empty
            self.answered = True
            return super().get()

    def list_one(name: str) -> list[ListAppResponse]:
        if name == NAMES[1]:
            release.wait()
        return []

    listed = list_all(NAMES[:2], list_one, 10, 1, clock=lambda: now[0], answers=Answers())
    release.set()
    assert now[0] == pytest.approx(104)
    assert list(listed.apps) == NAMES[:1]
    assert str(listed.errors[NAMES[1]]) == "no answer within 4 s"
