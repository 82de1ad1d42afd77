"""Tests of copies of logs: their names, and writing them once, also after a kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchx_log_sinks import writer as writer_module
from torchx_log_sinks.layout import app_folder, segments, split_lines
from torchx_log_sinks.writer import CopyWriter, LogChangedError


class MemorySink:
    """A sink that stores data in memory."""

    def __init__(self, stored: dict[str, bytes]) -> None:
        self.stored = stored

    def write(self, name: str, data: bytes, /) -> None:
        self.stored[name] = data

    def read(self, name: str, /) -> bytes:
        return self.stored[name]

    def list(self, folder: str, /) -> Iterator[str]:
        yield from [name for name in self.stored if name.startswith(f"{folder}/")]


def writer(sink: MemorySink) -> CopyWriter:
    return CopyWriter(sink.write, sink.read, list(sink.list("a")), "a/r/0", "combined")


def stored(sink: MemorySink) -> list[str]:
    found = segments(list(sink.list("a")), "a/r/0", "combined")
    return [line.decode() for s in found for line in split_lines(sink.read(s.name))]


def save(sink: MemorySink, lines: list[str], is_complete: bool = True) -> CopyWriter:
    made = writer(sink)
    made.add(lines)
    made.finish(is_complete)
    return made


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SEGMENT_BYTES", 20)


def test_copy_continues_at_every_line(small_segments: None) -> None:
    lines = [f"line {k}\n" for k in range(30)]
    for stop in range(31):
        sink = MemorySink({})
        save(sink, lines[:stop])
        assert stored(sink) == lines[:stop]
        assert save(sink, lines).added == 30 - stop
        assert stored(sink) == lines
        assert save(sink, lines).added == 0


def test_copy_continues_after_an_interrupted_write(small_segments: None) -> None:
    lines = [f"line {k}\n" for k in range(10)]
    whole = MemorySink({})
    save(whole, lines)
    name = max(whole.stored)
    for length in range(len(whole.stored[name]) + 1):
        sink = MemorySink({**whole.stored, name: whole.stored[name][:length]})
        save(sink, lines)
        assert stored(sink) == lines


def test_two_processes_write_the_same_segments(small_segments: None) -> None:
    lines = [f"line {k}\n" for k in range(20)]
    sink = MemorySink({})
    first, second = writer(sink), writer(sink)
    for line in lines:
        for each in (first, second):
            each.add([line])
            each.flush()
    assert stored(sink) == lines


def test_incomplete_line_is_saved_only_at_the_end_of_the_log() -> None:
    sink = MemorySink({})
    save(sink, ["a\n", "b"], is_complete=False)
    assert stored(sink) == ["a\n"]
    save(sink, ["a\n", "bc"])
    assert stored(sink) == ["a\n", "bc\n"]


def test_hostile_lines_are_saved_exactly() -> None:
    lines = ["\x1b[2J\r10%\r20%\n", "é\u202e\n", "x" * 1_000_000 + "\n", "\x0b\x1c\u2028\n", "\n"]
    sink = MemorySink({})
    save(sink, lines[:2])
    save(sink, lines)
    assert stored(sink) == lines


def test_rotated_log_continues_after_the_lines_of_the_copy(small_segments: None) -> None:
    lines = [f"line {k}\n" for k in range(200)]
    sink = MemorySink({})
    save(sink, lines[:100])
    rotated = lines[40:130]
    made = writer(sink)
    with pytest.raises(LogChangedError):
        save(sink, rotated)
    made.restart(rotated)
    made.add(rotated)
    made.finish(True)
    assert stored(sink) == lines[:130]
    assert save(sink, lines[40:]).added == 70
    assert stored(sink) == lines


def test_replaced_log_is_added_whole() -> None:
    sink = MemorySink({})
    save(sink, ["first attempt\n", "end\n"])
    made = writer(sink)
    with pytest.raises(LogChangedError):
        made.add(["second attempt\n"])
    made.restart(["second attempt\n"])
    made.add(["second attempt\n"])
    made.finish(True)
    assert stored(sink) == ["first attempt\n", "end\n", "second attempt\n"]


@pytest.mark.parametrize(
    ("handle", "folder"),
    [
        ("slurm://torchx/17", "slurm/torchx/17"),
        ("kubernetes:///ns:train", "kubernetes/_/ns%3Atrain"),
        ("s://s/..", "s/s/%2E%2E"),
        ("s://s/a%2fb", "s/s/a%252fb"),
    ],
)
def test_folder_of_an_app_has_three_safe_parts(handle: str, folder: str) -> None:
    assert app_folder(handle) == folder
