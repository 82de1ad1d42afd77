"""Tests of LineMerger and Tee, which merge the lines of files while programs write the files."""

from __future__ import annotations

import errno
import io
import os
import random
import threading
from pathlib import Path

import pytest

from torchx_kit.logs.streams import BLOCK_BYTES, GrowingFile, LineMerger, Tee


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.calls = 0
        self.fail_next = False

    def __call__(self, data: bytes) -> None:
        if self.fail_next:
            self.fail_next = False
            raise OSError(errno.ENOSPC, "full")
        self.calls += 1
        self.data += data


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_whole_lines_are_copied(tmp_path: Path) -> None:
    path, sink = tmp_path / "log", Sink()
    growing = GrowingFile(str(path))
    assert not growing.copy_lines(sink)  # the file does not exist yet
    append(path, b"one\ntw")
    assert growing.copy_lines(sink)
    assert sink.data == b"one\n"
    assert not growing.copy_lines(sink)
    append(path, b"o\r\nthree")
    assert growing.copy_lines(sink)
    assert sink.data == b"one\ntwo\r\n"
    assert growing.has_rest()
    assert growing.copy_rest(sink)
    assert sink.data == b"one\ntwo\r\nthree"
    assert not growing.copy_rest(sink)


def test_line_longer_than_a_block_is_not_held_in_memory(tmp_path: Path) -> None:
    path, sink = tmp_path / "log", Sink()
    growing = GrowingFile(str(path))
    line = os.urandom(5 * BLOCK_BYTES // 2).replace(b"\n", b" ")
    for start in range(0, len(line), BLOCK_BYTES // 3):
        append(path, line[start : start + BLOCK_BYTES // 3])
        assert not growing.copy_lines(sink)
    append(path, b"\nnext\nrest")
    assert growing.copy_lines(sink)
    assert sink.data == line + b"\nnext\n"
    assert sink.calls >= 3


def test_lines_that_could_not_be_written_are_copied_again(tmp_path: Path) -> None:
    path, sink = tmp_path / "log", Sink()
    append(path, b"one\ntwo\n")
    growing = GrowingFile(str(path))
    sink.fail_next = True
    with pytest.raises(OSError, match="full"):
        growing.copy_lines(sink)
    assert growing.copy_lines(sink)
    assert sink.data == b"one\ntwo\n"


def test_a_truncated_file_is_copied_from_its_beginning(tmp_path: Path) -> None:
    path, sink = tmp_path / "log", Sink()
    append(path, b"a long first line\n")
    growing = GrowingFile(str(path))
    growing.copy_lines(sink)
    path.write_bytes(b"new\n")
    growing.copy_lines(sink)
    assert sink.data == b"a long first line\nnew\n"


def test_incomplete_lines_end_up_on_lines_of_their_own(tmp_path: Path) -> None:
    one, two, sink = tmp_path / "1", tmp_path / "2", Sink()
    merger = LineMerger([GrowingFile(str(one)), GrowingFile(str(two))], sink)
    append(one, b"a\nunfinished")
    append(two, b"b\nalso")
    merger.merge()
    merger.finish()
    assert sorted(sink.data.split(b"\n")) == [b"a", b"also", b"b", b"unfinished"]


def test_the_file_that_was_written_last_comes_last(tmp_path: Path) -> None:
    one, two, sink = tmp_path / "1", tmp_path / "2", Sink()
    append(one, b"last\n")
    append(two, b"first\n")
    os.utime(two, (1, 1))
    LineMerger([GrowingFile(str(one)), GrowingFile(str(two))], sink).merge()
    assert sink.data == b"first\nlast\n"


def test_tee_copies_every_line_once_and_in_the_order_of_its_file(tmp_path: Path) -> None:
    paths = [tmp_path / str(i) for i in range(3)]
    out_path = tmp_path / "out"

    def write(path: Path, seed: int) -> None:
        choice = random.Random(seed)  # noqa: S311 - the same cuts every time
        text = b"".join(b"%d line %d\n" % (seed, i) for i in range(20000))
        with path.open("ab", buffering=0) as file:
            while text:
                size = choice.randrange(1, 3000)
                file.write(text[:size])
                text = text[size:]

    threads = [threading.Thread(target=write, args=(p, i)) for i, p in enumerate(paths)]
    with io.FileIO(out_path, "wb") as out:
        tee = Tee(out, *map(str, paths))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tee.close()
        tee.close()
    lines = out_path.read_bytes().splitlines()
    assert len(lines) == 60000
    for seed in range(3):
        mine = [line for line in lines if line.startswith(b"%d " % seed)]
        assert mine == [b"%d line %d" % (seed, i) for i in range(20000)]


def test_tee_writes_to_the_merged_file(tmp_path: Path) -> None:
    source = tmp_path / "in"
    with io.FileIO(tmp_path / "out", "wb") as out:
        tee = Tee(out, str(source))
        tee.write(b"header\n")
        append(source, b"body")
        tee.close()
    assert (tmp_path / "out").read_bytes() == b"header\nbody"


def test_tee_needs_a_source(tmp_path: Path) -> None:
    with io.FileIO(tmp_path / "out", "wb") as out, pytest.raises(ValueError, match="at least one"):
        Tee(out)
