"""Tests of reading durations and times, and of writing tables and plain data."""

from __future__ import annotations

import sys
from datetime import datetime, timezone

import pytest

from torchx_cli.arguments.options import parse_when
from torchx_cli.output import colors
from torchx_cli.output import printing as output
from torchx_kit.text.tables import format_table
from torchx_kit.times import parse_duration
from torchx_specs import AppState


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("10m", 600), ("2H", 7200), ("1h30m", 5400), ("500ms", 0.5)],
)
def test_parse_duration_accepts_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "-5", "1h30", "1 h", "soon"])
def test_parse_duration_rejects_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_parse_when_accepts_iso_8601_and_durations() -> None:
    now = datetime(2026, 5, 1, 12, 0, 0)
    assert parse_when("10m", now) == datetime(2026, 5, 1, 11, 50)
    assert parse_when("2026-05-01") == datetime(2026, 5, 1)
    assert parse_when("2026-05-01T10:20:30") == datetime(2026, 5, 1, 10, 20, 30)
    zoned = datetime(2026, 5, 1, 10, tzinfo=timezone.utc)
    expected = zoned.astimezone().replace(tzinfo=None)
    assert parse_when("2026-05-01T10:00:00Z") == expected
    assert parse_when("2026-05-01T12:00:00+02:00") == expected
    with pytest.raises(ValueError, match="is not a time"):
        parse_when("yesterday")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize("columns", ["10", "40", "300"])
def test_table_is_not_truncated_on_a_narrow_terminal(
    columns: str, term: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", term)
    handles = [f"kubernetes://torchx/{'a-long-name-' * n}\u65e5\u672c" for n in (1, 20)]
    output.write_table(["APP HANDLE", "APP STATUS"], [[h, "SUCCEEDED"] for h in handles])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["APP", "HANDLE", "APP", "STATUS"]
    assert set(lines[0]) == {"-", " "}
    assert [line.split() for line in lines[1:]] == [[h, "SUCCEEDED"] for h in handles]


def test_states_in_a_table_are_coloured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(colors, "is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    output.write_table(["APP", "STATE", "AGE"], [["FAILED", "FAILED", "1 s"], ["a", "RUNNING", ""]])
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first == "FAILED  \x1b[31mFAILED\x1b[0m   1 s"
    assert second == "a       \x1b[34mRUNNING\x1b[0m"


@pytest.mark.parametrize(
    ("term", "no_color", "expected"),
    [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)],
)
def test_colors_depend_on_the_terminal_and_no_color(
    term: str, no_color: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colors, "is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_color)
    assert colors.takes_color(sys.stdout) is expected


def test_empty_table_has_headers() -> None:
    text = format_table(["APP HANDLE", "APP NAME", "APP STATUS"], [])
    assert text == ("APP HANDLE    APP NAME    APP STATUS\n------------  ----------  ------------")


def test_table_is_aligned_without_trailing_blanks() -> None:
    text = format_table(["A", "B"], [["long cell", "x"], ["b", ""]])
    assert text.splitlines() == ["A          B", "---------  ---", "long cell  x", "b"]


def test_to_plain_data_converts_other_types_to_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    data = {"n": 1, "b": True, "t": (1, 2.5), "o": Odd(), "x": None, 3: AppState.FAILED}
    assert output.to_plain_data(data) == {
        "n": 1,
        "b": True,
        "t": [1, 2.5],
        "o": "odd",
        "x": None,
        "3": 5,
    }
