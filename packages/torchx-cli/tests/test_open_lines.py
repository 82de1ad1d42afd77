"""Tests of unfinished lines: updated in place on a terminal, elsewhere shown as lines."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from manual_clock import ManualClock
from patience import PATIENCE
from torchx_cli.logs import reader
from torchx_cli.logs.reader import LogReader, OpenLines
from torchx_cli.output.terminal import escape_controls
from torchx_specs.schedulers.log_items import PartialLine as P
from torchx_specs.schedulers.logs import LogQuery

R = ("r", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def show(lines: OpenLines, *items: str) -> str:
    return "".join(lines.add(R, "r/0 ", item) for item in items)


@pytest.mark.parametrize(
    ("items", "shown"),
    [
        ([P("10%"), P("\r20%"), "\n"], "r/0 20%\n"),
        ([P("10%"), "\r20%\n", "next\n"], "r/0 20%\nr/0 next\n"),
        ([P("\r10%"), P("\r20%")], ""),
        ([P("name: "), ""], "r/0 name: \n"),
        ([P("a"), P("b"), "c"], "r/0 abc\n"),
        ([P("\x1b[2J"), "\n"], "r/0 \\u001b[2J\n"),
        ([P("a\x1b"), "[2J\n"], "r/0 a\\u001b[2J\n"),
        ([P("\u202ea"), "\n"], "r/0 \\u202ea\n"),
        ([P("\x1b[31mred"), "\n"], "r/0 \x1b[31mred\x1b[0m\n"),
    ],
)
def test_a_live_line_is_finished_by_its_newline(items: list[str], shown: str) -> None:
    assert show(OpenLines(safe=True, has_region=True), *items) == shown


def test_live_lines_have_the_text_after_the_last_carriage_return() -> None:
    lines = OpenLines(safe=True, has_region=True)
    lines.add(("r", 10), "r/10 ", P("\r10%"))
    show(lines, P("10%"), P("\r20%"), P(" done"))
    assert lines.states() == ["r/0 20% done", "r/10 10%"]
    assert lines.end() == "r/10 10%\nr/0 20% done\n"
    assert lines.states() == []


def test_a_very_long_live_line_is_shown_before_its_end() -> None:
    lines = OpenLines(safe=True, has_region=True)
    assert show(lines, *[P("\r" + "x" * 10_000)] * 20) == ""
    assert len(show(lines, *[P("x" * 10_000)] * 6)) > 60_000
    assert show(lines, "\n") == ""


def test_updates_are_separate_lines_at_most_once_a_second(clock: ManualClock) -> None:
    lines = OpenLines(safe=True, clock=clock)
    assert show(lines, P("10%")) == "r/0 10%\n"
    clock.now += 0.5
    assert show(lines, P("\r20%"), P("\r30%")) == ""
    assert lines.show_due() == ""
    clock.now += 0.5
    assert lines.show_due() == "r/0 30%\n"
    assert show(lines, P("\r40%")) == ""
    assert show(lines, "\r50%\r60%\n") == "r/0 60%\n"
    assert show(lines, P("70%")) == "r/0 70%\n"
    assert show(lines, "") == ""
    assert lines.end() == ""


def test_held_text_is_shown_at_the_end(clock: ManualClock) -> None:
    lines = OpenLines(safe=False, clock=clock)
    assert show(lines, P("10%"), P("\r20%")) == "r/0 10%\n"
    assert lines.end() == "r/0 20%\n"


def test_a_line_without_pieces_is_shown_as_it_is(clock: ManualClock) -> None:
    lines = OpenLines(safe=False, clock=clock)
    assert show(lines, "a\x1b[2J\rb\n") == "r/0 a\x1b[2J\rr/0 b\n"


def test_held_text_is_bounded(clock: ManualClock) -> None:
    lines = OpenLines(safe=True, clock=clock)
    show(lines, P("begin"))
    assert len(show(lines, *[P("x" * 10_000)] * 7)) > 60_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def read(blocks: Any, stream: io.StringIO, replicas: list[tuple[str, int]], **options: Any) -> str:
    calls: list[dict[str, Any]] = []

    def log_blocks(handle: str, replicas: Any, query: LogQuery) -> Iterator[Any]:
        calls.append({"partial": query.partial})
        return iter(blocks)

    options = {"should_tail": True, "partial": True, **options}
    LogReader(log_blocks, "s://s/a", LogQuery(**options), stream).read_all(replicas)
    wanted = options["should_tail"] and options["partial"] and options.get("regex") is None
    assert calls == [{"partial": wanted}]
    return stream.getvalue()


def test_updates_of_a_dumb_terminal_are_separate_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    other = ("r", 1)
    blocks = [(R, [P("10%")]), (other, ["x\n"]), (R, ["\r20%\n"])]
    for stream in (Terminal(), io.StringIO()):
        assert read(blocks, stream, [R, other]) == "r/0 10%\nr/1 x\nr/0 20%\n"


@pytest.mark.parametrize("options", [{"regex": "x"}, {"should_tail": False}, {"partial": False}])
def test_pieces_are_requested_only_to_follow_all_lines(options: dict[str, Any]) -> None:
    assert read([(R, ["x\n"])], io.StringIO(), [R], **options) == "r/0 x\n"


def test_an_update_that_was_held_back_is_shown_although_nothing_follows() -> None:
    shown = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if "20%" in text:
                shown.set()
            return super().write(text)

    def blocks() -> Iterator[Any]:
        yield R, [P("10%")]
        yield R, [P("\r20%")]
        assert shown.wait(PATIENCE)  # nothing more is read until then
        yield R, ["\r30%\n"]

    assert read(blocks(), Stream(), [R]) == "r/0 10%\nr/0 20%\nr/0 30%\n"


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m \x1b]0;t\x07 \x9b2J\u202e", "a\rb\x1b[?25l"])
def test_no_cut_makes_text_unsafe(text: str) -> None:
    for first in range(len(text)):
        for second in range(first, len(text)):
            lines = OpenLines(safe=True, has_region=True)
            items = [P(text[:first]), P(text[first:second]), text[second:] + "\n"]
            shown = show(lines, *items)
            assert escape_controls(shown, keep_returns=True) == shown


def test_lines_without_pieces_are_written_block_by_block() -> None:
    class Counting(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    stream = Counting()
    read([(R, [f"{n}\n" for n in range(1000)])], stream, [R])
    assert stream.writes == 1
    assert reader.PartialLine is P


@pytest.mark.parametrize("tail", [False, True])
def test_an_error_of_the_last_write_is_raised(tail: bool) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        read([(R, ["x\n"])], Full(), [R], should_tail=tail)
    with pytest.raises(OSError, match="No space left"):
        read([(R, [P("x")])], Full(), [R])
