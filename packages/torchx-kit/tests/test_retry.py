"""Tests of retries of requests."""

from __future__ import annotations

import pytest

from manual_clock import ManualClock
from torchx_kit.retry import Backoff, Outage, retry


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class ServiceDownError(Exception):
    pass


def test_a_request_is_repeated_until_it_succeeds(clock: ManualClock) -> None:
    errors = [ServiceDownError(), ServiceDownError()]

    def request() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert retry(request, ServiceDownError, Backoff(60, sleep=clock.sleep, clock=clock)) == "done"
    assert clock.pauses == [0.5, 1.0]


def test_it_gives_up_before_the_limit_is_exceeded(clock: ManualClock) -> None:
    def request() -> str:
        raise ServiceDownError("down")

    with pytest.raises(ServiceDownError, match="down"):
        retry(request, ServiceDownError, Backoff(4, sleep=clock.sleep, clock=clock))
    assert clock.pauses == [0.5, 1.0, 2.0]


def test_another_error_is_raised_at_once(clock: ManualClock) -> None:
    def request() -> str:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        retry(request, ServiceDownError, Backoff(60, sleep=clock.sleep, clock=clock))
    assert clock.pauses == []


def test_pauses_have_an_upper_limit(clock: ManualClock) -> None:
    backoff = Backoff(1000, longest_pause=2, sleep=clock.sleep, clock=clock)
    for _ in range(5):
        backoff.pause_after(ServiceDownError())
    assert clock.pauses == [0.5, 1.0, 2, 2, 2]


def test_an_answer_renews_the_limit(clock: ManualClock) -> None:
    backoff = Backoff(2, sleep=clock.sleep, clock=clock)
    for _ in range(10):
        backoff.pause_after(ServiceDownError())
        backoff.pause_after(ServiceDownError())
        backoff.reset()
    assert clock.pauses == [0.5, 1.0] * 10


def test_pauses_between_answers_do_not_count(clock: ManualClock) -> None:
    backoff = Backoff(1.2, longest_pause=1, sleep=clock.sleep, clock=clock)
    for _ in range(10):
        backoff.pause()
    backoff.pause_after(ServiceDownError())
    with pytest.raises(ServiceDownError):
        backoff.pause_after(ServiceDownError())


def test_all_clients_give_up_after_the_first(clock: ManualClock) -> None:
    outage = Outage(clock)
    outage.answered()
    clock.sleep(1)
    began = clock()
    clock.sleep(120)
    with pytest.raises(ServiceDownError, match="first"):
        outage.unanswered(ServiceDownError("first"), began)
    assert outage.is_given_up
    with pytest.raises(ServiceDownError, match="first"):
        outage.answered()  # the service is back, but one client has given up
    with pytest.raises(ServiceDownError, match="second"):
        outage.unanswered(ServiceDownError("second"), clock())


def test_no_client_gives_up_if_another_one_got_an_answer(clock: ManualClock) -> None:
    outage = Outage(clock)
    began = clock()
    clock.sleep(119)
    outage.answered()
    clock.sleep(1)
    outage.unanswered(ServiceDownError(), began)
    assert not outage.is_given_up
