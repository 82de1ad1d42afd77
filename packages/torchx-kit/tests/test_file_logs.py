"""Tests of reading and following log files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patience import wait_for
from torchx_kit.logs import log_file, regular_files
from torchx_kit.logs.file_logs import (
    Tail,
    follow_files,
    log_lines,
    stream_files,
)
from torchx_kit.logs.following import Followed, QuietLogs, follow_all
from torchx_kit.logs.log_file import BLOCK_BYTES
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers import Stream


def tail(finished: threading.Event, *watch: Path, check_every: float = 0.1) -> Tail:
    return Tail(
        finished.is_set,
        watch=[str(path) for path in watch],
        check_every=check_every,
    )


class Follower:
    """Follows a log in a thread."""

    def __init__(self, path: Path, how: Tail) -> None:
        self.lines: list[str] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(path, how))
        self._thread.start()

    def _run(self, path: Path, how: Tail) -> None:
        try:
            for line in log_lines(path, tail=how):
                self.lines.append(line)
        except BaseException as e:
            self.error = e

    def until(self, count: int) -> list[str]:
        wait_for(lambda: len(self.lines) >= count, lambda: self.lines, pause=0.005)
        return self.lines

    def result(self) -> list[str]:
        self._thread.join(120)
        assert not self._thread.is_alive(), "still following"
        assert self.error is None
        return self.lines


# The following tests read logs without following them.


@given(st.binary(max_size=300))
def test_lines_are_the_bytes_split_at_newlines(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_bytes(data)
    expected = [(part + b"\n").decode("utf-8", "replace") for part in data.split(b"\n")[:-1]]
    if last := data.split(b"\n")[-1]:
        expected.append(last.decode("utf-8", "replace"))
    assert list(log_lines(path)) == expected


def test_only_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\r\nnext"
    path.write_text(text, encoding="utf-8", newline="")
    assert list(log_lines(path)) == ["a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\r\n", "next"]


def test_characters_across_blocks_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = "\u20ac" * 1000
    count = 5 * BLOCK_BYTES // len(line.encode())
    path.write_text(f"{line}\n" * count, encoding="utf-8")
    assert list(log_lines(path)) == [f"{line}\n"] * count


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 40 * BLOCK_BYTES])
def test_line_of_any_length_is_one_line(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short\n" + b"x" * size + b"\nend")
    assert list(log_lines(path)) == ["short\n", "x" * size + "\n", "end"]


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\xff\nb\xe2\x82\n\xc3")
    assert list(log_lines(path)) == ["a\ufffd\n", "b\ufffd\n", "\ufffd"]


def test_regex_selects_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("loss 1\nepoch\nthe loss 2\n")
    assert list(log_lines(path, "loss [0-9]")) == ["loss 1\n", "the loss 2\n"]


def test_bad_regex_is_a_request_error(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"'\(' is not a regular expression"):
        log_lines(tmp_path / "log", "(")


def test_missing_log_is_an_error_without_tail(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no log at"):
        list(log_lines(tmp_path / "none"))


def test_folder_in_place_of_a_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot read"):
        list(log_lines(tmp_path))


def test_reading_is_lazy_and_closes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\n" * 100_000)
    open_files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    lines = iter(log_lines(path))
    assert next(lines) == "a\n"
    del lines
    if open_files:
        assert len(os.listdir("/proc/self/fd")) == open_files


# The following tests select lines by time.


NOON = time.time() + 100_000


class FakeTimes:
    """Times of a log whose byte k was written k seconds after noon."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def written_before(self, when: float) -> int | None:
        size = self._path.stat().st_size
        position = max(int(when - NOON), 0) // 4 * 4
        return position if position <= size else None


def at(seconds: float) -> datetime:
    seconds += 0.5  # a time between the writes of two bytes
    return datetime.fromtimestamp(NOON + seconds, timezone.utc)


def test_since_and_until_select_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("111\n222\n333\n444\n")
    times = FakeTimes(path)
    assert list(log_lines(path, since=at(4), times=times)) == ["222\n", "333\n", "444\n"]
    assert list(log_lines(path, until=at(8), times=times)) == ["111\n", "222\n"]
    assert list(log_lines(path, since=at(4), until=at(12), times=times)) == ["222\n", "333\n"]
    assert list(log_lines(path, since=at(99), times=times)) == []
    assert list(log_lines(path, until=at(99), times=times)) == ["111\n", "222\n", "333\n", "444\n"]
    naive = datetime.fromtimestamp(NOON + 12.5)
    assert list(log_lines(path, since=naive, times=times)) == ["444\n"]


def test_since_without_times_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need the argument times"):
        log_lines(tmp_path / "log", since=at(0))


def test_following_ends_at_the_first_line_after_until(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("111\n")
    times = FakeTimes(path)
    how = tail(threading.Event())
    lines = iter(log_lines(path, until=at(8), times=times, tail=how))
    assert next(lines) == "111\n"
    with path.open("a") as file:
        file.write("222\n333\n")
    assert list(lines) == ["222\n"]


def test_following_ends_when_the_time_until_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("111\n")
    soon = datetime.fromtimestamp(time.time() + 0.2, timezone.utc)
    how = tail(threading.Event())
    lines = log_lines(path, until=soon, times=FakeTimes(tmp_path / "log"), tail=how)
    assert list(lines) == []


def test_following_skips_lines_before_since(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("111\n")
    finished = threading.Event()
    result: list[str] = []
    times = FakeTimes(path)

    def follow() -> None:
        result.extend(log_lines(path, since=at(8), times=times, tail=tail(finished)))

    thread = threading.Thread(target=follow)
    thread.start()
    with path.open("a") as file:
        file.write("222\n333\n")
    finished.set()
    thread.join(120)
    assert result == ["333\n"]


# The following tests follow a log.


def test_a_followed_line_is_yielded_once_it_is_complete(tmp_path: Path) -> None:
    path, finished = tmp_path / "log", threading.Event()
    path.write_bytes(b"")
    follower = Follower(path, tail(finished))
    with path.open("ab", buffering=0) as log:
        log.write(b"one\ntw")
        assert follower.until(1) == ["one\n"]
        log.write(b"o\n")
        assert follower.until(2) == ["one\n", "two\n"]
        log.write(b"unfinished")
        finished.set()
    assert follower.result() == ["one\n", "two\n", "unfinished"]


def test_a_followed_log_and_its_folders_may_appear_later(tmp_path: Path) -> None:
    path, finished = tmp_path / "a" / "b" / "log", threading.Event()
    follower = Follower(path, tail(finished))
    time.sleep(0.05)
    path.parent.mkdir(parents=True)
    time.sleep(0.05)
    path.write_text("there\n")
    assert follower.until(1) == ["there\n"]
    finished.set()
    assert follower.result() == ["there\n"]


def test_a_followed_log_that_never_appears_is_empty(tmp_path: Path) -> None:
    finished = threading.Event()
    follower = Follower(tmp_path / "log", tail(finished))
    finished.set()
    assert follower.result() == []


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    path, finished = tmp_path / "log", threading.Event()
    path.write_text("old\n")
    follower = Follower(path, tail(finished))
    follower.until(1)
    with path.open("a") as old:
        path.rename(tmp_path / "log.1")
        old.write("written to the old one\n")
    path.write_text("new\n")
    follower.until(3)
    finished.set()
    assert follower.result() == ["old\n", "written to the old one\n", "new\n"]


def test_a_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    path, finished = tmp_path / "log", threading.Event()
    path.write_text("a long line before\n")
    follower = Follower(path, tail(finished))
    follower.until(1)
    path.write_text("after\n")
    follower.until(2)
    finished.set()
    assert follower.result() == ["a long line before\n", "after\n"]


class NfsDouble:
    """The module ``os`` as on NFS: an open file shows only the bytes that it had when opened."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int, *, dir_fd: int | None) -> int:
        fd = os.open(path, flags, mode, dir_fd=dir_fd)
        self.sizes[fd] = os.fstat(fd).st_size
        return fd

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, max(0, min(size, self.sizes[fd] - position)), position)


def test_the_last_lines_are_read_though_nfs_shows_them_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nfs = NfsDouble()
    monkeypatch.setattr(log_file, "os", nfs)
    monkeypatch.setattr(regular_files, "os", nfs)
    path, finished = tmp_path / "log", threading.Event()
    path.write_text("one\n")
    follower = Follower(path, tail(finished))
    follower.until(1)
    with path.open("a") as log:
        log.write("two\nthree")
    time.sleep(0.2)
    assert follower.lines == ["one\n"]
    finished.set()
    assert follower.result() == ["one\n", "two\n", "three"]


def test_a_change_of_a_watched_file_triggers_a_check_of_the_end(tmp_path: Path) -> None:
    path, state = tmp_path / "log", tmp_path / "state"
    path.write_text("x\n")
    state.write_text("running")
    checks = []

    def is_finished() -> bool:
        checks.append(time.monotonic())
        return state.read_text() == "ended"

    how = Tail(is_finished, watch=[str(state)], check_every=1000)
    follower = Follower(path, how)
    follower.until(1)
    time.sleep(0.2)
    assert len(checks) <= 3
    state.write_text("ended")
    assert follower.result() == ["x\n"]


def test_a_log_that_reports_its_own_end_does_so_after_another_file_appeared(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    path.write_text("begin\n")
    how = Tail(lambda: "end" in path.read_text(), watch=[str(path)], check_every=1000)

    def write() -> None:
        time.sleep(0.3)
        # The log may have been replaced, so the reader watches it again.
        (tmp_path / "other").touch()
        time.sleep(0.3)
        with path.open("a") as f:
            f.write("end\n")

    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(log_lines(path, tail=how)), daemon=True)
    writer = threading.Thread(target=write)
    reader.start()
    writer.start()
    writer.join()
    reader.join(120)
    assert not reader.is_alive()
    assert lines == ["begin\n", "end\n"]


def test_every_line_of_a_busy_writer_is_read_in_order(tmp_path: Path) -> None:
    path, finished = tmp_path / "log", threading.Event()
    follower = Follower(path, tail(finished))
    subprocess.run(["/bin/sh", "-c", f"seq 100000 > {path}"], check=True)
    finished.set()
    assert follower.result() == [f"{i}\n" for i in range(1, 100001)]


# The following tests follow many logs.


def test_many_logs_are_followed_in_one_thread(tmp_path: Path) -> None:
    count, journal = 40, tmp_path / "journal"
    journal.touch()
    expected = {k: [f"{k} {n} {'x' * (n * k % 300)}\n" for n in range(60)] for k in range(count)}
    expected[7][-1] = "without its end"
    finished = [threading.Event() for _ in range(count)]

    def write() -> None:
        files = [(tmp_path / str(k)).open("ab", buffering=0) for k in range(count)]
        texts = ["".join(expected[k]).encode() for k in range(count)]
        for part in range(20):  # most parts end within a line
            for k, file in enumerate(files):
                begin, end = (len(texts[k]) * i // 20 for i in (part, part + 1))
                file.write(texts[k][begin:end])
            time.sleep(0.005)
        for k, file in enumerate(files):
            file.close()
            finished[k].set()
            with journal.open("a") as log:
                log.write("one has ended\n")

    logs = (
        (
            k,
            log_lines(tmp_path / str(k), tail=tail(finished[k], journal, check_every=86400)),
        )
        for k in range(count)
    )
    found: dict[int, list[str]] = {k: [] for k in range(count)}
    threads = threading.active_count()
    writer = threading.Thread(target=write)
    writer.start()
    most_threads = 0
    for k, lines in follow_all(logs):
        assert not isinstance(lines, Exception)
        found[k] += lines
        most_threads = max(most_threads, threading.active_count())
    writer.join()
    assert found == expected
    assert most_threads <= threads + 1  # the writer


@pytest.fixture
def quiet() -> Iterator[QuietLogs]:
    logs = QuietLogs()
    yield logs
    logs.close()


def next_to_read(quiet: QuietLogs, followed: Followed) -> None:
    """Read what the log has, and wait until it must be read again."""
    assert list(followed.read_new()) == []
    quiet.add(followed)
    assert wait_for(lambda: quiet.wait(at_once=False)) == [followed]


def test_a_log_without_changes_is_looked_at_and_not_read(tmp_path: Path, quiet: QuietLogs) -> None:
    log = tmp_path / "log"
    log.touch()
    followed = Followed(log_lines(log, tail=Tail(lambda: False, check_every=86400)))
    next_to_read(quiet, followed)  # it may have changed before the first look
    assert list(followed.read_new()) == []
    quiet.add(followed)
    looks = [quiet.wait(at_once=False) for _ in range(20)]
    assert looks == [[]] * 20
    log.write_text("one\n")
    assert wait_for(lambda: quiet.wait(at_once=False)) == [followed]
    assert ["".join(block) for block in followed.read_new()] == ["one\n"]
    followed.file.close()


def test_an_end_that_comes_while_a_log_is_read_is_checked_afterwards(
    tmp_path: Path, quiet: QuietLogs
) -> None:
    log, journal, ended = tmp_path / "log", tmp_path / "journal", threading.Event()
    log.touch()
    journal.touch()
    how = Tail(ended.is_set, watch=[str(journal)], check_every=86400)
    followed = Followed(log_lines(log, tail=how))
    next_to_read(quiet, followed)
    log.write_text("one\n")
    blocks = followed.read_new()
    assert "".join(next(blocks)) == "one\n"
    ended.set()
    journal.write_text("it has ended\n")
    assert list(blocks) == []
    assert not followed.is_over
    quiet.add(followed)
    assert wait_for(lambda: quiet.wait(at_once=False)) == [followed]
    assert list(followed.read_new()) == []
    assert followed.is_over
    followed.file.close()


def test_an_unreadable_log_ends_only_itself(tmp_path: Path) -> None:
    ended = threading.Event()
    ended.set()
    (tmp_path / "fine").write_text("fine\n")
    (tmp_path / "folder").mkdir()

    def broken() -> bool:
        raise RuntimeError("fake: unknown")

    logs = {
        "folder": log_lines(tmp_path / "folder", tail=Tail(ended.is_set)),
        "unknown": log_lines(tmp_path / "fine", tail=Tail(broken)),
        "fine": log_lines(tmp_path / "fine", tail=Tail(ended.is_set)),
    }
    found = [
        (name, str(lines) if isinstance(lines, Exception) else [*lines])
        for name, lines in follow_all(logs.items())
    ]
    assert sorted(found, key=str) == [
        ("fine", ["fine\n"]),
        ("folder", f"cannot read {tmp_path / 'folder'}: Is a directory"),
        ("unknown", "fake: unknown"),
    ]


def test_a_failing_check_of_the_end_ends_only_its_own_log(tmp_path: Path) -> None:
    journal, ended, is_broken = tmp_path / "journal", threading.Event(), threading.Event()
    journal.touch()
    (tmp_path / "log").write_text("line\n")

    def is_finished() -> bool:
        if is_broken.is_set():
            raise RuntimeError("fake: unknown")
        return False

    def change() -> None:
        time.sleep(0.2)
        is_broken.set()
        journal.write_text("changed")
        time.sleep(0.2)
        ended.set()
        journal.write_text("changed again")

    watch, how = [str(journal)], {"check_every": 30}
    logs = {
        "broken": log_lines(tmp_path / "log", tail=Tail(is_finished, watch, **how)),
        "fine": log_lines(tmp_path / "log", tail=Tail(ended.is_set, watch, **how)),
    }
    changer = threading.Thread(target=change)
    changer.start()
    found = [
        (name, str(lines) if isinstance(lines, Exception) else [*lines])
        for name, lines in follow_all(logs.items())
    ]
    changer.join()
    assert found == [("broken", ["line\n"]), ("fine", ["line\n"]), ("broken", "fake: unknown")]


def test_a_long_log_does_not_delay_the_others(tmp_path: Path) -> None:
    ended = threading.Event()
    ended.set()
    (tmp_path / "long").write_text("x" * 99 + "\n")
    with (tmp_path / "long").open("a") as log:
        log.write(("x" * 99 + "\n") * (BLOCK_BYTES // 10))
    (tmp_path / "short").write_text("short\n")
    logs = {name: log_lines(tmp_path / name, tail=Tail(ended.is_set)) for name in ("long", "short")}
    order = [name for name, lines in follow_all(logs.items()) if [*lines]]  # type: ignore[misc]
    assert order[:3] == ["long", "short", "long"]
    assert order.count("long") > 5


def test_lines_written_while_a_log_is_read_are_not_lost(tmp_path: Path) -> None:
    ended, path, journal = threading.Event(), tmp_path / "log", tmp_path / "journal"
    path.touch()
    journal.touch()

    def write() -> None:
        with path.open("ab", buffering=0) as log:
            for n in range(3000):
                log.write(b"%d\n" % n)
                if not n % 100:
                    time.sleep(0.002)
        ended.set()
        journal.write_text("ended")

    writer = threading.Thread(target=write)
    writer.start()
    # Without the events of the watched files, the logs would not end.
    waiting = [tail(ended, journal, check_every=86400) for _ in range(2)]
    logs = [(k, log_lines(path, tail=waiting[k])) for k in (0, 1)]
    found: dict[int, list[str]] = {0: [], 1: []}
    for k, lines in follow_all(logs):
        assert not isinstance(lines, Exception)
        found[k] += lines
        time.sleep(0.001)  # meanwhile, the writer writes more lines
    writer.join()
    assert found[0] == found[1] == [f"{n}\n" for n in range(3000)]


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    script = f"""
import resource, sys
from torchx_kit.logs.file_logs import Tail, log_lines
log = {str(path)!r}
open(log, "w").write("x\\n")
assert list(log_lines(log, tail=Tail(lambda: True)))
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
line = b"a line of a log that is long enough to be like one, again and again\\n"
with open(log, "wb") as file:
    for _ in range(100):
        file.write(line * 10000)
assert sum(1 for _ in log_lines(log, tail=Tail(lambda: True))) == 1_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle)
"""
    out = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert int(out.stdout) < 10_000  # The unit is KB. The log has 68 MB.


class TestSeveralFiles:
    def test_stream_files_returns_the_files_of_a_stream(self) -> None:
        assert stream_files("/a/b", Stream.STDOUT) == ["/a/b.out"]
        assert stream_files("/a/b", Stream.STDERR) == ["/a/b.err"]
        assert stream_files("/a/b", Stream.COMBINED) == ["/a/b.out", "/a/b.err"]

    @pytest.mark.parametrize("count", [1, 2])
    def test_follow_files_reads_all_files_until_they_end(self, tmp_path: Path, count: int) -> None:
        finished = threading.Event()
        paths = [tmp_path / "x.out", tmp_path / "x.err"][:count]
        lines = iter(follow_files([str(path) for path in paths], tail(finished, "poll")))
        for path in paths:
            path.write_text("1\n")
        assert [next(lines) for _ in paths] == ["1\n"] * count
        with open(paths[-1], "a") as log:
            log.write("2")
        finished.set()
        assert list(lines) == (["2"] if count == 1 else ["2\n"])


# The following tests read files whose kind or content other programs control.


@pytest.mark.parametrize("follow", [False, True])
def test_fifo_is_not_a_log(tmp_path: Path, follow: bool) -> None:
    os.mkfifo(tmp_path / "log")
    tail = Tail(lambda: True) if follow else None
    with pytest.raises(BackendError, match="not a regular file"):
        list(log_lines(tmp_path / "log", tail=tail))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("end", ["", "\n", "\nlast\n", "\n\nlast"])
def test_rest_of_a_very_long_line_is_replaced_by_a_remark(
    tmp_path: Path, follow: bool, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "LONGEST_LINE_BYTES", 1 << 17)
    path = tmp_path / "log"
    path.write_text(f"first\n{'x' * 1_000_000}{end}")
    lines = list(log_lines(path, tail=Tail(lambda: True) if follow else None))
    assert lines[0] == "first\n"
    text, _, remark = lines[1].partition(" [")
    shown = len(text)
    assert 1 << 17 <= shown < 1 << 18
    newline = "\n" if end else ""
    assert remark == f"{1_000_000 - shown} more bytes of this line are in {path}]{newline}"
    assert "".join(lines[2:]) == end[1:]


def test_memory_for_a_long_line_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(300_000_000)  # a sparse file: one line of NUL characters
    # ru_maxrss would include the memory of pytest, from which the process was forked.
    code = """
import re, sys
from torchx_kit.logs.file_logs import log_lines
[line] = log_lines(sys.argv[1])
peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
print(len(line) > 8_000_000, peak < 150_000)
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")
