"""Tests of reports of long steps: log lines by default, or a display of the program."""

from __future__ import annotations

import pytest

from manual_clock import ManualClock
from torchx_kit.progress import Step, show_progress


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_long_step_is_logged_at_most_once_in_each_interval(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with Step("pulling busybox", 4_000_000, clock=clock) as step:
        for _ in range(20):
            clock.now += 1.0
            step.advance(200_000)
    assert caplog.messages == [
        f"pulling busybox: {mb},000,000 of 4,000,000 bytes" for mb in (1, 2, 3, 4)
    ]


def test_short_and_quiet_steps_are_not_logged(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with Step("short", 10, clock=clock) as step:
        clock.now += 4.9
        step.advance(10)
    seen: list[Step] = []
    with show_progress(seen.append), Step("quiet", 10, quiet=True, clock=clock) as step:
        clock.now += 60
        step.advance(10)
    assert caplog.messages == []
    assert seen == []


def test_step_of_unknown_size_is_logged_without_the_size(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with Step("copying", unit="files", clock=clock) as step:
        clock.now += 5.0
        step.advance(7)
    assert caplog.messages == ["copying: 7 files"]


def test_display_gets_begin_changes_and_end_even_after_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    seen: list[tuple[int, int | None, bool]] = []

    def display(step: Step) -> None:
        seen.append((step.done, step.total, step.has_ended))

    def interrupted() -> None:
        with Step("x") as step:
            step.set(1, 5)
            step.advance(2)
            step.advance(-1)
            raise KeyboardInterrupt

    with show_progress(display), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen == [
        (0, None, False),
        (1, 5, False),
        (3, 5, False),
        (2, 5, False),
        (2, 5, True),
    ]
    with Step("afterwards"):
        pass
    assert len(seen) == 5
    assert caplog.messages == []
