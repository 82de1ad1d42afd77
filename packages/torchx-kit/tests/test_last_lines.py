"""Tests of the last lines of log files, which equal the end of the whole log."""

from __future__ import annotations

import os
import random
import threading
import tracemalloc
from datetime import datetime
from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.logs import ReplicaLog
from torchx_kit.logs import log_file
from torchx_kit.logs.file_logs import Tail, log_lines
from torchx_kit.logs.following import Followed
from torchx_kit.logs.lines import split_lines
from torchx_kit.logs.log_file import LONGEST_LINE_BYTES, find_last_lines
from torchx_specs.schedulers.logs import LogQuery

LAST = (0, 1, 2, 3, 7, 50, 10_000)
PIECES = ["\n", "\r", "\r\n", "a", "é", "\x1b[31m", "x" * 40, "\n\n", "a line\n", " 10%\r 20%"]


def random_text(seed: int) -> str:
    choose = random.Random(seed)  # noqa: S311 - reproducible text
    return "".join(choose.choice(PIECES) for _ in range(choose.randrange(60)))


def expected_end(text: str, last: int) -> list[str]:
    return split_lines(text)[-last:] if last else []


@pytest.fixture(params=[1, 3, 16, 1 << 16])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set the size of the blocks that are read, and return this size."""
    monkeypatch.setattr(log_file, "BLOCK_BYTES", request.param)
    return int(request.param)


class BytesBefore:
    """The times of a log to which one byte is written per second, beginning in 1970."""

    def written_before(self, when: float) -> int | None:
        return int(when)


@pytest.mark.parametrize("seed", range(40))
def test_last_lines_equal_the_end_of_the_whole_log(
    tmp_path: Path, seed: int, block_bytes: int
) -> None:
    path = tmp_path / "log"
    text = random_text(seed)
    path.write_bytes(text.encode())
    for last in LAST:
        assert list(log_lines(path, last=last)) == expected_end(text, last)
        tail = Tail(lambda: True)
        assert list(log_lines(path, last=last, tail=tail)) == expected_end(text, last)


@pytest.mark.parametrize("seed", range(20))
def test_last_lines_of_a_time_equal_the_end_of_that_part(
    tmp_path: Path, seed: int, block_bytes: int
) -> None:
    path = tmp_path / "log"
    text = random_text(seed)
    path.write_bytes(text.encode())
    positions = [0]
    for line in split_lines(text):
        positions.append(positions[-1] + len(line.encode()))
    choose = random.Random(seed)  # noqa: S311 - reproducible text
    begin, end = sorted(choose.choices(positions, k=2))
    window = {
        "since": datetime.fromtimestamp(begin),
        "until": datetime.fromtimestamp(end),
        "times": BytesBefore(),
    }
    lines = list(log_lines(path, **window))
    for last in LAST:
        expected = lines[-last:] if last else []
        assert list(log_lines(path, **window, last=last)) == expected
        assert list(log_lines(path, **window, last=last, tail=Tail(lambda: True))) == expected


@pytest.mark.parametrize("last", [0, 1, 3, 50])
@pytest.mark.parametrize("seed", range(10))
def test_following_the_last_lines_misses_and_repeats_no_line(
    tmp_path: Path, seed: int, last: int
) -> None:
    path = tmp_path / "log"
    before, after = random_text(seed), random_text(1000 + seed)
    path.write_text(before, newline="")
    ended = threading.Event()
    lines = log_lines(
        path,
        last=last,
        tail=Tail(ended.is_set, check_every=0.01),
    )
    followed = Followed(lines)
    found: list[str] = []
    for block in followed.read_new():  # read the log up to its present end
        found += block
    with path.open("a", newline="") as file:
        for character in after:
            file.write(character)
            file.flush()
            for block in followed.read_new():
                found += block
    ended.set()
    followed.must_check_end = True
    for block in followed.read_new():
        found += block
    followed.file.close()
    # An incomplete last line counts as a line; the text of ``after`` completes it.
    skipped = max(0, len(split_lines(before)) - last)
    if last == 0 and before and not before.endswith("\n"):
        assert "".join(found) == after
    else:
        assert found == split_lines(before + after)[skipped:]


def test_a_log_that_is_created_later_is_followed_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    followed = Followed(log_lines(path, last=1, tail=Tail(lambda: path.exists())))
    assert list(followed.read_new()) == []
    path.write_text("one\ntwo\n")
    followed.must_check_end = True
    assert [line for block in followed.read_new() for line in block] == ["one\n", "two\n"]


@pytest.mark.parametrize("truncate", [False, True])
def test_a_rotated_log_is_followed_after_its_last_lines(tmp_path: Path, truncate: bool) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthree\n")
    ended: list[bool] = []
    followed = Followed(log_lines(path, last=1, tail=Tail(lambda: bool(ended))))
    found = [line for block in followed.read_new() for line in block]
    if not truncate:
        os.rename(path, tmp_path / "log.1")
    path.write_text("new\n")
    ended.append(True)
    followed.must_check_end = True
    found += [line for block in followed.read_new() for line in block]
    assert found == ["three\n", "new\n"]
    followed.file.close()


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("last", range(9))
def test_last_lines_of_two_streams_are_the_end_of_both(
    tmp_path: Path, last: int, follow: bool
) -> None:
    base = str(tmp_path / "log")
    out, err = ["out 1\n", "out 2\n", "out 3"], ["err 1\n", "err 2\n", "err 3\n"]
    Path(base + ".out").write_text("".join(out))
    Path(base + ".err").write_text("".join(err))
    log = ReplicaLog(LocalHost(), base, follow, lambda: True)
    lines = log.read(LogQuery(should_tail=follow, last=last))
    expected = [*out, *err][-last:] if last else []
    if follow:  # the lines of followed files are interleaved, and each has a newline
        expected = [line if line.endswith("\n") else line + "\n" for line in expected]
        assert sorted(lines) == sorted(expected)
    else:
        assert list(lines) == expected


def test_memory_is_bounded_however_large_the_log_and_its_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(3 << 30)  # a sparse file: one line of 3 GB
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    fd = os.open(path, os.O_RDONLY)
    tracemalloc.start()
    try:
        size = os.fstat(fd).st_size
        assert find_last_lines(fd, 1, 0, size) == (size - 5, 1)
        # Search only 100 MB of the sparse part, because this is enough for the measurement.
        begin = size - (100 << 20)
        assert find_last_lines(fd, 3, begin, size) == (begin, 2)
        assert list(log_lines(path, last=1)) == ["last\n"]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
        os.close(fd)


def test_a_line_that_is_too_long_is_cut_as_in_the_whole_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\n" + "x" * (LONGEST_LINE_BYTES * 5) + "\nlast\n")
    whole = list(log_lines(path))
    assert "more bytes of this line" in whole[1]
    assert list(log_lines(path, last=2)) == whole[1:]


@pytest.mark.parametrize("offset", [0, 1, 10_000, 70_000])
def test_the_remark_on_a_long_line_does_not_depend_on_where_blocks_begin(
    tmp_path: Path, offset: int
) -> None:
    path = tmp_path / "log"
    for size in (LONGEST_LINE_BYTES - 1, LONGEST_LINE_BYTES, LONGEST_LINE_BYTES + 5):
        path.write_text("y" * offset + "\n" + "x" * size + "\n")
        line = list(log_lines(path, tail=Tail(lambda: True)))[1]
        assert line.startswith("x" * min(size, LONGEST_LINE_BYTES))
        assert ("[5 more bytes" in line) == (size > LONGEST_LINE_BYTES)
