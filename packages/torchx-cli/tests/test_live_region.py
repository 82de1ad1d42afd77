"""Tests of the live region at the bottom of a terminal, shown by a terminal emulator."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyte
import pytest

from patience import PATIENCE, wait_for
from torchx_cli.logging_setup import Handler
from torchx_cli.logs import reader
from torchx_cli.logs.reader import LogReader
from torchx_cli.output import live_region
from torchx_cli.output.live_region import LiveRegion
from torchx_specs.schedulers.log_items import PartialLine as P
from torchx_specs.schedulers.logs import LogQuery

R, OTHER = ("r", 0), ("r", 1)


class Terminal(io.StringIO):
    """A terminal whose screen is emulated; ``most`` is the largest number of colours in effect."""

    def __init__(self, columns: int = 40, rows: int = 20) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, rows)
        self.screen.set_mode(pyte.modes.LNM)  # the kernel adds the carriage return to a newline
        self._emulator = pyte.Stream(self.screen)
        self.writes: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._emulator.feed(text)
        self.writes.append(text)
        return len(text)

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, up to the row of the cursor."""
        lines = [line.rstrip() for line in self.screen.display]
        assert not any(lines[self.screen.cursor.y :]), lines
        return lines[: self.screen.cursor.y]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()

    def size(stream: Any) -> tuple[int, int]:
        return terminal.screen.columns, terminal.screen.lines

    monkeypatch.setattr(live_region, "terminal_size", size)
    return terminal


def test_text_scrolls_above_the_lines(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    region.draw("begin\n", ["a 1%", "b 1%"])
    assert terminal.lines == ["begin", "a 1%", "b 1%"]
    region.draw("x\ny\n", ["a 20%", "b 2%"])
    assert terminal.lines == ["begin", "x", "y", "a 20%", "b 2%"]
    region.draw("", ["a 3%"])
    assert terminal.lines == ["begin", "x", "y", "a 3%"]
    region.draw("end\n", [])
    assert terminal.lines == ["begin", "x", "y", "end"]


def test_text_that_is_longer_than_the_terminal_keeps_its_order(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    for number in range(100):
        region.draw(f"{number:<60}end\n", [f"bar {number}", "bar"])
    assert terminal.lines[-6:] == ["98", " " * 20 + "end", "99", " " * 20 + "end", "bar 99", "bar"]


def test_a_drawing_that_changes_nothing_is_empty(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    region.draw("", [])
    assert terminal.writes == []
    region.draw("", ["a"])
    region.draw("", ["a"])
    assert len(terminal.writes) == 1
    with region.hidden():
        assert terminal.lines == []
        assert len(terminal.writes) == 2
    with region.hidden():
        assert len(terminal.writes) == 2
    region.draw("", ["a"])
    assert terminal.lines == ["a"]


def test_twelve_lines_are_shown_and_the_others_are_counted(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    region.draw("", [f"r/{k} 1%" for k in range(64)])
    assert terminal.lines == [*(f"r/{k} 1%" for k in range(12)), "… 52 more"]
    region.draw("", [f"r/{k} 1%" for k in range(12)])
    assert terminal.lines == [f"r/{k} 1%" for k in range(12)]


def test_a_low_terminal_has_fewer_lines(terminal: Terminal) -> None:
    terminal.screen.resize(5, 40)
    region = LiveRegion(terminal)
    for number in range(3):
        region.draw(f"{number}\n", [f"{k}%" for k in range(9)])
    assert terminal.lines == ["0%", "1%", "2%", "… 6 more"]


def test_a_resized_terminal_is_drawn_in_its_new_size(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    bar = "0123456789" * 5
    region.draw("begin\n", [bar, "b"])
    assert terminal.lines == ["begin", bar[:39], "b"]
    terminal.screen.resize(20, 60)
    region.draw("", [bar, "b"])
    assert terminal.lines == ["begin", bar, "b"]


def test_lines_that_a_narrower_terminal_has_broken_are_removed(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    region.draw("begin\n", ["x" * 39, "b"])
    # The emulator cuts long lines off; other terminals break them.
    terminal.screen.reset()
    terminal.screen.resize(20, 30)
    terminal.screen.set_mode(pyte.modes.LNM)
    terminal.write(f"begin\n{'x' * 39}\nb\n")
    region.draw("", ["x" * 39, "b"])
    assert terminal.lines == ["begin", "x" * 29, "b"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 100, "x" * 39),
        ("日本" * 30, "日本" * 9 + "日"),
        ("e\u0301" * 50, "é" * 39),
        ("█" * 50, "█" * 39),
        ("a\tb\nc", "a b c"),
        ("a\x1b[2Jb\x1b]0;title\x07", "a\\u001b[2Jb\\u001b]0;title\\u0007"),
        ("\x1b[5A\x08", "\\u001b[5A\\u0008"),
        ("\x1b[31m" + "x" * 50, "x" * 39),
        ("\x1b[31m" * 5000, "\\u001b"),
    ],
)
def test_a_line_is_cut_by_its_width(terminal: Terminal, text: str, shown: str) -> None:
    region = LiveRegion(terminal)
    for _ in range(3):
        region.draw("above\n", ["first", text, "last"])
    lines = terminal.lines
    assert [*lines[:4], lines[-1]] == ["above", "above", "above", "first", "last"]
    assert len(lines) == 6
    assert lines[4] == shown
    assert terminal.screen.cursor.attrs.fg == "default"


def test_emoji_do_not_break_the_region(terminal: Terminal) -> None:
    region = LiveRegion(terminal)
    for _ in range(3):
        region.draw("", ["❤️" * 60, "👩‍👩‍👧" * 30, "last"])
    assert len(terminal.lines) == 3
    assert terminal.lines[-1] == "last"


def read(
    terminal: Terminal, blocks: Any, *, error: BaseException | None = None, color: bool = False
) -> None:
    def log_blocks(*args: Any) -> Iterator[Any]:
        yield from blocks
        if error is not None:
            raise error

    query = LogQuery(should_tail=True, partial=True)
    LogReader(log_blocks, "s://s/a", query, terminal, color).read_all([R, OTHER])


def test_a_bar_is_a_line_once_it_is_finished(terminal: Terminal) -> None:
    read(
        terminal,
        [
            (R, ["begin\n", P("10%")]),
            (OTHER, [P("\r1%"), "\r100%\n", "next\n", "a\rb\r\n", P("50%")]),
            (R, [P("\r20%")]),
            (R, ["\r30%\n", "end\n"]),
        ],
    )
    shown = ["r/0 begin", "r/1 100%", "r/1 next", "r/1 b", "r/0 30%", "r/0 end", "r/1 50%"]
    assert terminal.lines == shown


@pytest.mark.parametrize("error", [RuntimeError("lost"), KeyboardInterrupt()])
def test_an_error_ends_the_region(terminal: Terminal, error: BaseException) -> None:
    with pytest.raises(type(error)):
        read(terminal, [(R, [P("10%")]), (OTHER, [P("20%")])], error=error)
    assert terminal.lines == ["r/0 10%", "r/1 20%"]


def test_a_long_line_is_cut_in_the_region_and_whole_once_it_is_finished(terminal: Terminal) -> None:
    text = "r/0 " + "0123456789" * 5

    def blocks() -> Iterator[Any]:
        yield R, [P("0123456789" * 5)]
        assert terminal.lines == [text[:39]]
        yield R, ["!\n"]

    read(terminal, blocks())
    assert terminal.lines == [text[:40], text[40:] + "!"]


def test_colours_of_a_job_end_with_its_line(terminal: Terminal) -> None:
    def blocks() -> Iterator[Any]:
        yield R, [P("\x1b[31mred")]
        assert terminal.screen.buffer[0][4].fg == "red"
        assert terminal.screen.cursor.attrs.fg == "default"
        yield R, ["\n"]

    read(terminal, blocks(), color=True)
    assert terminal.screen.buffer[0][0].fg == "green"
    assert terminal.screen.buffer[0][4].fg == "red"


def test_no_color_does_not_remove_the_region(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    def blocks() -> Iterator[Any]:
        yield R, [P("10%")]
        assert terminal.lines == ["r/0 10%"]

    read(terminal, blocks())


def test_an_update_is_drawn_although_nothing_follows(terminal: Terminal) -> None:
    def blocks() -> Iterator[Any]:
        yield R, [P("10%")]
        yield R, [P("\r20%")]
        yield OTHER, ["text\n"]
        wait_for(lambda: "r/0 20%" in terminal.writes[-1])
        wait_for(lambda: "text" in "".join(terminal.writes))
        assert terminal.lines == ["r/1 text", "r/0 20%"]

    read(terminal, blocks())


def test_only_much_text_does_not_wait_for_the_next_drawing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_BUFFER_CHARS", 1000)
    monkeypatch.setattr(reader, "DRAW_SECONDS", 3600.0)
    text = [f"{number:<30}\n" for number in range(100)]

    def log_blocks(*args: Any) -> Iterator[Any]:
        yield R, [P("10%")]
        yield R, [P("\r20%")]
        yield OTHER, text[:10]
        assert len(terminal.writes) == 1
        assert terminal.lines == ["r/0 10%"]
        yield OTHER, text[10:]
        assert len(terminal.writes) == 2
        assert terminal.lines[-2].startswith("r/1 99")
        assert terminal.lines[-1] == "r/0 20%"

    read(terminal, log_blocks())


def test_log_messages_are_above_the_region(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    handler = Handler()

    def log(text: str) -> None:
        handler.handle(logging.LogRecord("torchx", logging.INFO, "", 0, text, None, None))

    def blocks() -> Iterator[Any]:
        yield R, [P("10%")]
        thread = threading.Thread(target=log, args=["from a thread"])
        thread.start()
        thread.join(PATIENCE)
        log("from the reader")
        wait_for(lambda: terminal.writes[-1].startswith("\033[?7l"))
        assert terminal.lines == [*(f"torchx: {text}" for text in texts), "r/0 10%"]

    texts = ["before", "from a thread", "from the reader"]
    log("before")
    read(terminal, blocks())
    log("after")
    assert terminal.lines[3:] == ["r/0 10%", "torchx: after"]


def test_stop_removes_the_region(terminal: Terminal) -> None:
    def log_blocks(*args: Any) -> Iterator[Any]:
        yield R, [P("10%")]
        log_reader.stop()
        assert terminal.lines == ["r/0 10%"]
        yield R, ["\r20%\n"]

    query = LogQuery(should_tail=True, partial=True)
    log_reader = LogReader(log_blocks, "s://s/a", query, terminal)
    log_reader.read_all([R])
    assert terminal.lines == ["r/0 10%"]
    assert not log_reader.is_writing


def test_a_closed_terminal_ends_the_reading(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(text: str) -> int:
        raise OSError(5, os.strerror(5))

    def blocks() -> Iterator[Any]:
        yield R, [P("10%")]
        monkeypatch.setattr(terminal, "write", write)
        yield OTHER, ["text\n"]

    with pytest.raises(OSError, match="error"):
        read(terminal, blocks())


@pytest.mark.parametrize("is_followed", [False, True])
def test_marks_of_attempts_are_requested_on_a_terminal(
    terminal: Terminal, is_followed: bool
) -> None:
    queries: list[LogQuery] = []

    def log_blocks(handle: str, replicas: Any, query: LogQuery) -> Iterator[Any]:
        queries.append(query)
        yield R, [P("10%")] if is_followed else ["10%\n"]
        yield R, ["\n"] if is_followed else []
        if query.attempts:
            yield R, ["--- attempt 2 ---\n"]

    query = LogQuery(should_tail=is_followed, partial=is_followed)
    pipe = io.StringIO()
    for stream in (terminal, pipe):
        LogReader(log_blocks, "s://s/a", query, stream).read_all([R])
    assert [query.attempts for query in queries] == [True, False]
    assert terminal.lines == ["r/0 10%", "r/0 --- attempt 2 ---"]
    assert pipe.getvalue() == "r/0 10%\n"
