"""Tests of the rate limit, with a fake clock."""

from __future__ import annotations

from manual_clock import ManualClock
from torchx_sched_aws.client import RateLimit


def test_first_requests_do_not_wait() -> None:
    clock = ManualClock()
    limit = RateLimit(8, clock, clock.sleep)
    for _ in range(8):
        limit.wait()
    assert clock.now == 100.0


def test_no_second_has_more_than_twice_the_rate() -> None:
    clock = ManualClock()
    limit = RateLimit(8, clock, clock.sleep)
    times = []
    for _ in range(400):
        limit.wait()
        times.append(clock.now)
    assert max(sum(1 for t in times if 0 <= t - begin < 1) for begin in times) <= 16
    assert 48 < times[-1] - times[0] < 50


def test_quiet_time_is_saved_up_for_one_second_only() -> None:
    clock = ManualClock()
    limit = RateLimit(8, clock, clock.sleep)
    limit.wait()
    clock.now += 1000
    for _ in range(16):
        limit.wait()
    assert clock.now == 1101.0
