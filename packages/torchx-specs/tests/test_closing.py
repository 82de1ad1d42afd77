"""Tests of the end of waits when a scheduler is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.closing import ClosedError, Closing, closing_of


class Older(Scheduler[Any]):
    """A scheduler whose constructor does not call that of its base class."""

    def __init__(self) -> None:
        pass


Older.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def lines(error: Exception) -> Iterator[str]:
    yield "first"
    raise error


def test_an_error_ends_an_iteration_quietly_only_after_the_closing() -> None:
    closing = Closing()
    with pytest.raises(OSError, match="broken"):
        list(closing.until_closed(lines(OSError("broken"))))
    closing.set()
    assert list(closing.until_closed(lines(OSError("broken")))) == ["first"]


def test_a_wait_that_begins_during_the_closing_ends() -> None:
    closing = Closing()
    closing.set()
    calls: list[int] = []
    with closing.calling(lambda: calls.append(1)):
        assert calls == [1]
    with pytest.raises(ClosedError):
        closing.sleep(300)


def test_a_scheduler_can_be_used_after_it_was_closed() -> None:
    scheduler = Older()  # type: ignore[abstract]
    first = closing_of(scheduler)
    assert closing_of(scheduler) is first
    scheduler.close()
    scheduler.close()
    assert first.is_set()
    assert not closing_of(scheduler).is_set()
