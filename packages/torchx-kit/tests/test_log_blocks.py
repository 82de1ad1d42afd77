"""Tests of blocks of lines of many log files."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from patience import PATIENCE
from torchx_kit.logs.file_logs import FileLog, Tail, file_log_blocks, log_lines


def write_logs(folder: Path, count: int) -> dict[int, list[str]]:
    """Write log files, and return their lines; the last line of each lacks its newline."""
    lines = {k: [*(f"{k} {n}\n" for n in range(1200)), f"{k} end"] for k in range(count)}
    for k, text in lines.items():
        (folder / str(k)).write_text("".join(text))
    return lines


def collect(
    blocks: Iterable[tuple[object, Iterable[str] | Exception]],
) -> tuple[dict[object, list[str]], list[tuple[object, str]]]:
    lines: dict[object, list[str]] = {}
    errors = []
    for key, block in blocks:
        if isinstance(block, Exception):
            errors.append((key, str(block)))
        else:
            lines.setdefault(key, []).extend(block)
    return lines, errors


@pytest.mark.parametrize("should_tail", [False, True])
def test_blocks_hold_every_line_of_every_log(tmp_path: Path, should_tail: bool) -> None:
    expected = write_logs(tmp_path, 5)
    tail = Tail(lambda: True) if should_tail else None
    logs = ((k, log_lines(tmp_path / str(k), tail=tail)) for k in expected)
    assert collect(file_log_blocks(logs, should_tail=should_tail)) == (expected, [])


@pytest.mark.parametrize("should_tail", [False, True])
def test_an_error_ends_only_its_own_log(tmp_path: Path, should_tail: bool) -> None:
    (tmp_path / "fine").write_text("fine\n")
    (tmp_path / "folder").mkdir()
    tail = Tail(lambda: True) if should_tail else None
    logs: list[tuple[str, FileLog | Exception]] = [
        ("unknown", ValueError("no such replica")),
        ("folder", log_lines(tmp_path / "folder", tail=tail)),
        ("fine", log_lines(tmp_path / "fine", tail=tail)),
    ]
    lines, errors = collect(file_log_blocks(logs, should_tail=should_tail))
    assert lines == {"fine": ["fine\n"]}
    assert errors == [
        ("unknown", "no such replica"),
        ("folder", f"cannot read {tmp_path / 'folder'}: Is a directory"),
    ]


@pytest.mark.parametrize("should_tail", [False, True])
def test_a_key_may_have_several_logs(tmp_path: Path, should_tail: bool) -> None:
    (tmp_path / "out").write_text("out\n")
    (tmp_path / "err").write_text("err\n")
    tail = Tail(lambda: True) if should_tail else None
    logs = [("main", log_lines(tmp_path / name, tail=tail)) for name in ("out", "err")]
    lines, errors = collect(file_log_blocks(logs, should_tail=should_tail))
    assert (lines, errors) == ({"main": ["out\n", "err\n"]}, [])


def test_followed_logs_yield_matching_lines_as_they_are_written(tmp_path: Path) -> None:
    ended = threading.Event()
    paths = [tmp_path / "0", tmp_path / "1"]
    for path in paths:
        path.write_text("skip\nline 1\n")
    logs = [(k, log_lines(path, "line", tail=Tail(ended.is_set))) for k, path in enumerate(paths)]
    blocks = file_log_blocks(logs, should_tail=True)
    found: dict[int, list[str]] = {0: [], 1: []}
    for key, lines in blocks:
        assert not isinstance(lines, Exception)
        found[key] += lines
        if found == {0: ["line 1\n"], 1: ["line 1\n"]}:
            for path in paths:
                with path.open("a") as file:
                    file.write("skip\nline 2\n")
            ended.set()
    assert found == {0: ["line 1\n", "line 2\n"], 1: ["line 1\n", "line 2\n"]}


def test_closing_the_generator_takes_no_more_logs(tmp_path: Path) -> None:
    taken = []

    def logs() -> Iterator[tuple[int, FileLog]]:
        for k in write_logs(tmp_path, 3):
            taken.append(k)
            yield k, log_lines(tmp_path / str(k))

    blocks = file_log_blocks(logs(), should_tail=False)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert taken == [0]


def test_many_lines_are_few_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a line of a log of the usual length\n" * 200_000)
    blocks = file_log_blocks([(0, log_lines(path))], should_tail=False)
    counts = [len(list(lines)) for _, lines in blocks if not isinstance(lines, Exception)]
    assert sum(counts) == 200_000
    assert len(counts) < 1000


_FEW_DESCRIPTORS = """
import pathlib, resource, sys
from torchx_kit.logs.file_logs import Tail, log_lines
from torchx_kit.logs.following import follow_all

folder, count = pathlib.Path(sys.argv[1]), 60
tail = Tail((folder / "end").exists, [str(folder)], 0.2)
logs = ((k, log_lines(folder / f"{k}.log", tail=tail)) for k in range(count))
seen = 0
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
for k, block in follow_all(logs):
    if isinstance(block, Exception):
        sys.exit(f"log {k}: {block}")
    seen += len(list(block))
    if seen in (count, 2 * count):
        print(seen, flush=True)
"""


def test_more_logs_than_descriptors_are_followed_to_their_end(tmp_path: Path) -> None:
    logs = [tmp_path / f"{k}.log" for k in range(60)]
    for log in logs:
        log.write_text("first\n")
    command = [sys.executable, "-c", _FEW_DESCRIPTORS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "60\n"
        for log in logs:
            with log.open("a") as file:
                file.write("second\n")
        assert process.stdout.readline() == "120\n"
        (tmp_path / "end").touch()
        assert process.wait(PATIENCE) == 0
