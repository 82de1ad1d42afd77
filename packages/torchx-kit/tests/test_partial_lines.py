"""Tests of text without a newline, which followers of a log get before the line ends."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from torchx_kit.logs import following
from torchx_kit.logs.file_logs import Tail, follow_files, log_lines
from torchx_kit.logs.following import Followed, follow_all
from torchx_kit.logs.lines import split_lines
from torchx_kit.logs.log_file import LONGEST_LINE_BYTES, whole_length
from torchx_kit.logs.streams import GrowingFile, LineMerger
from torchx_specs.schedulers.log_items import PartialLine

PIECES = ["\n", "\r", "\r\n", "é", "€", "😀", "\x1b[31m", "\x1b[0m", "\x1b]0;title\x07", " 10%\r"]
PIECES += ["\x1b]8;;http://x\x1b\\", "\x1b(B", "a line\n", "text "]
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*m|\][^\x07\x1b]*(?:\x07|\x1b\\)|\(B)")


def random_text(seed: int, newlines: bool = True) -> str:
    choose = random.Random(seed)  # noqa: S311 - reproducible text
    pieces = PIECES if newlines else [piece for piece in PIECES if "\n" not in piece]
    return "".join(choose.choice(pieces) for _ in range(choose.randrange(60)))


def joined(items: list[str]) -> list[str]:
    """Return the whole lines of a log from its items, some of which are pieces of lines."""
    lines = [""]
    for item in items:
        lines[-1] += item
        if not isinstance(item, PartialLine):
            lines.append("")
    assert lines.pop() == "", "the last item ends no line"
    return lines


@pytest.mark.parametrize("seed", range(50))
def test_a_piece_cuts_no_character_and_no_sequence(seed: int) -> None:
    text = random_text(seed, newlines=False)
    data = text.encode()
    for end in range(len(data) + 1):
        piece = data[: whole_length(data[:end])].decode()  # raises if a character is cut
        assert not piece.endswith("\r")
        assert "\x1b" not in SEQUENCE.sub("", piece)
        assert data.startswith(piece.encode())


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 0),
        (b"abc", 3),
        (b"\xff\xfe", 2),
        (b"a\xe2\x82", 1),
        (b"\x80\x80\x80\x80\x80", 5),
        (b"a\x1b[\r", 1),
        (b"a\x1b]0;title\x1b", 1),
        (b"\x1b[31mred", 8),
        (b"\x1b]" + b"x" * 5000, 5002),
    ],
)
def test_bytes_that_are_held_back(data: bytes, length: int) -> None:
    assert whole_length(data) == length


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a followed log yield a piece at the second read after the piece was written."""
    monkeypatch.setattr(following, "PIECE_SECONDS", 0.0)


def read_items(followed: Followed) -> list[str]:
    return [item for block in followed.read_new() for item in block]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(60))
def test_pieces_and_lines_together_are_the_log(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "log"
    choose = random.Random(seed)  # noqa: S311 - the same cuts every time
    data = random_text(seed).encode()
    ended: list[bool] = []
    followed = Followed(log_lines(path, tail=Tail(lambda: bool(ended), partial=True)))
    items: list[str] = []
    while data:
        size = choose.randrange(1, 12)
        with path.open("ab") as file:
            file.write(data[:size])
        data = data[size:]
        for _ in range(choose.randrange(3)):
            items += read_items(followed)
    ended.append(True)
    followed.must_check_end = True
    items += read_items(followed)
    followed.file.close()
    text = random_text(seed)
    lines = joined(items)
    assert [line for line in lines if line] == split_lines(text)
    for item in items:
        if isinstance(item, PartialLine):
            assert item
            assert "\n" not in item


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(80))
def test_pieces_of_merged_files_are_shown_once(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311 - the same order every time
    merged_log = tmp_path / "combined.log"
    paths = [tmp_path / "stdout.log", tmp_path / "stderr.log"]
    texts = [random_text(seed), random_text(1000 + seed)]
    rest = [text.encode() for text in texts]

    def write(data: bytes) -> None:
        with merged_log.open("ab") as file:
            file.write(data)

    merger = LineMerger([GrowingFile(str(path)) for path in paths], write)
    ended: list[bool] = []
    tail = Tail(lambda: bool(ended), partial=True, sources=[str(path) for path in paths])
    followed = Followed(log_lines(merged_log, tail=tail))
    items: list[str] = []
    while any(rest):
        k = choose.randrange(2)
        size = choose.randrange(12)
        with paths[k].open("ab") as file:
            file.write(rest[k][:size])
        rest[k] = rest[k][size:]
        if choose.random() < 0.6:
            merger.merge()
        for _ in range(choose.randrange(3)):
            items += read_items(followed)
    merger.finish()
    ended.append(True)
    followed.must_check_end = True
    items += read_items(followed)
    followed.file.close()
    expected = merged_log.read_bytes().decode() if merged_log.exists() else ""
    # No character is lost or repeated. A line may be interrupted by lines of the other file.
    shown = sorted("".join(joined(items)).replace("\n", ""))
    assert shown == sorted(expected.replace("\n", ""))
    if not any(isinstance(item, PartialLine) for item in items):
        assert items == split_lines(expected)


def items_until(items: Iterator[str], wanted: Callable[[str], bool]) -> list[str]:
    found = []
    for item in items:
        found.append(item)
        if wanted(item):
            return found
    raise AssertionError(found)


def test_a_progress_bar_reaches_followers_before_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("begin\n")
    ended = threading.Event()
    tail = Tail(ended.is_set, check_every=0.05, partial=True)
    items = iter(log_lines(path, tail=tail))
    assert next(items) == "begin\n"
    with path.open("a") as file:
        file.write("10%")
        file.flush()
        assert next(items) == PartialLine("10%")
        file.write("\r20%\r")
        file.flush()
        found = next(items)
        assert (found, type(found)) == ("\r20%", PartialLine)
        file.write("\n")
    ended.set()
    assert list(items) == ["\r\n"]


def test_whole_lines_are_the_default(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("begin\n10%")
    ended = threading.Event()
    threading.Timer(0.7, ended.set).start()
    lines = log_lines(path, tail=Tail(ended.is_set, check_every=0.05))
    assert list(lines) == ["begin\n", "10%"]
    assert ended.is_set()


def test_a_regular_expression_needs_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("no\n10%")
    ended = threading.Event()
    threading.Timer(0.7, ended.set).start()
    lines = log_lines(path, "%", tail=Tail(ended.is_set, check_every=0.05, partial=True))
    assert [(line, type(line)) for line in lines] == [("10%", str)]


def test_pieces_of_two_files_do_not_share_a_line(tmp_path: Path) -> None:
    paths = [str(tmp_path / "log.out"), str(tmp_path / "log.err")]
    ended = threading.Event()
    items = follow_files(paths, Tail(ended.is_set, check_every=0.05, partial=True))
    Path(paths[0]).write_text("10%")
    assert items_until(items, lambda item: item == "10%") == ["10%"]
    Path(paths[1]).write_text("warning\n")
    assert items_until(items, lambda item: item == "warning\n") == ["\n", "warning\n"]
    with open(paths[0], "a") as file:
        file.write("\r20%\n")
    assert items_until(items, lambda item: "20%" in item)[-1].lstrip("\r") in ("20%", "20%\n")
    ended.set()
    list(items)


@pytest.mark.usefixtures("at_once")
def test_a_line_that_is_too_long_ends_in_the_same_remark(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ended: list[bool] = []
    followed = Followed(log_lines(path, tail=Tail(lambda: bool(ended), partial=True)))
    items: list[str] = []
    with path.open("a") as file:
        for _ in range(6):
            file.write("x" * (LONGEST_LINE_BYTES // 4))
            file.flush()
            items += read_items(followed) + read_items(followed)
        file.write("\nnext\n")
    ended.append(True)
    followed.must_check_end = True
    items += read_items(followed)
    assert joined(items) == list(log_lines(path, tail=Tail(lambda: True)))
    followed.file.close()


def test_an_incomplete_line_that_stays_costs_almost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text("a\n10%\r\x1b[")
    ended = threading.Event()
    reads: list[Followed] = []
    read_new = Followed.read_new

    def counted(followed: Followed) -> Iterator[Iterable[str]]:
        reads.append(followed)
        return read_new(followed)

    monkeypatch.setattr(Followed, "read_new", counted)
    blocks = follow_all([(0, log_lines(path, tail=Tail(ended.is_set, partial=True)))])
    items = (item for _, block in blocks for item in block)  # type: ignore[union-attr]
    assert [next(items), next(items)] == ["a\n", "10%"]
    threading.Timer(1.0, ended.set).start()
    assert list(items) == ["\r\x1b["]
    assert len(reads) < 10


def test_marks_are_where_attempts_begin(tmp_path: Path) -> None:
    path = tmp_path / "log"
    begins: list[int] = []
    ended = threading.Event()

    def begin_attempt(text: str) -> None:
        begins.append(path.stat().st_size)
        with path.open("a") as log:
            log.write(text)

    path.write_text("")
    begin_attempt("a\nb\n")  # the first attempt wrote nothing
    lines = log_lines(path, tail=Tail(ended.is_set, partial=True, attempts=lambda: begins))
    assert [next(lines) for _ in range(3)] == ["--- attempt 2 ---\n", "a\n", "b\n"]
    begin_attempt("")
    begin_attempt("c\n")
    ended.set()
    assert list(lines) == ["--- attempt 3 ---\n", "--- attempt 4 ---\n", "c\n"]


def test_marks_before_the_first_line_that_is_read_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb\nc\n")
    for last, shown in ((1, ["c\n"]), (2, ["--- attempt 3 ---\n", "b\n", "c\n"])):
        tail = Tail(lambda: True, attempts=lambda: [0, 2, 100])
        assert list(log_lines(path, tail=tail, last=last)) == shown
    assert list(log_lines(path, "[ac]", tail=tail)) == ["a\n", "c\n"]
