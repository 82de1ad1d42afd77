"""Tests of exit codes in words, and of times as services write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.signals import describe_exit, exit_signal, process_exit_code, signal_name
from torchx_kit.times import datetime_of, moment, parse_rfc3339, to_nanoseconds


@pytest.mark.parametrize(
    ("exit_code", "number", "text"),
    [
        (0, 0, ""),
        (1, 0, "exit code 1"),
        (127, 0, "exit code 127"),
        (128, 0, "exit code 128"),
        (137, 9, "exit code 137 (SIGKILL)"),
        (255, 0, "exit code 255"),
        (-15, 15, "killed by signal 15 (SIGTERM)"),
        (-63, 63, "killed by signal 63"),
    ],
)
def test_an_exit_code_in_words(exit_code: int, number: int, text: str) -> None:
    assert exit_signal(exit_code) == number
    assert describe_exit(exit_code) == text


def test_a_shells_exit_code_becomes_that_of_subprocess() -> None:
    assert [process_exit_code(code) for code in (0, 2, 137, -9)] == [0, 2, -9, -9]


def test_an_unknown_signal_has_no_name() -> None:
    assert (signal_name(15), signal_name(0)) == ("SIGTERM", "")


@given(
    st.datetimes(
        min_value=datetime(1970, 1, 2),
        max_value=datetime(2200, 1, 1),
        timezones=st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours))),
    )
)
def test_parsing_reverses_formatting(when: datetime) -> None:
    assert parse_rfc3339(when.isoformat().encode()) == to_nanoseconds(when)


def test_nanoseconds_are_kept() -> None:
    assert parse_rfc3339(b"1970-01-02T00:00:01.123456789Z") == 86_401_123_456_789


@pytest.mark.parametrize("stamp", [b"", b"yesterday", b"1970-01-02", b"1970-01-02T00:00Z"])
def test_another_text_is_a_value_error(stamp: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the caller's business
        parse_rfc3339(stamp)


@pytest.mark.parametrize("seconds", [None, 0, -1, 1e300, float("nan"), "yesterday"])
def test_no_time_is_no_moment(seconds: float | None) -> None:
    assert moment(seconds) is None


def test_a_moment_has_a_zone() -> None:
    assert moment(1.5) == datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc)


@pytest.mark.parametrize("stamp", [None, "", "yesterday", "0001-01-01T00:00:00Z", 7])
def test_no_time_is_no_datetime(stamp: object) -> None:
    assert datetime_of(stamp) is None
