"""Tests of incomplete lines: how they are merged with the engine's log, and the relay process."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from manual_clock import ManualClock
from torchx_sched_docker.logs import relay
from torchx_sched_docker.logs.container_log import STDERR, STDOUT
from torchx_sched_docker.logs.open_lines import OpenLines
from torchx_specs.schedulers.log_items import PartialLine

BOTH = frozenset({STDOUT, STDERR})
PIECES = [b"text ", b"10%\r", b"\r20%", "é€".encode(), b"\x1b[31m", b"x\n", b"\n", b"same\n"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def quiet(lines: OpenLines, clock: ManualClock) -> list[str]:
    """Let enough time pass for text without a newline to be shown."""
    clock.now += 0.25
    return lines.take_pieces()


def joined(items: list[str]) -> list[str]:
    """Join items to lines; a ``PartialLine`` is continued by the next item."""
    found = [""]
    for item in items:
        found[-1] += item
        if not isinstance(item, PartialLine):
            found.append("")
    assert found.pop() == "", "the last item ends no line"
    return found


@pytest.mark.parametrize("seed", range(300))
def test_each_character_is_shown_once(seed: int, clock: ManualClock) -> None:
    choose = random.Random(seed)  # noqa: S311 - reproducible text
    written = b"".join(choose.choice(PIECES) for _ in range(choose.randrange(80)))
    whole = [line + b"\n" for line in written.split(b"\n")[:-1]]
    rest = written.rpartition(b"\n")[2]
    lines = OpenLines(BOTH, clock)
    items: list[str] = []
    lines.attached()
    position = logged = 0
    while position < len(written) or logged < len(whole):
        # The client or the log may be ahead, but not when both have been quiet for a while.
        if choose.random() < 0.6 and position < len(written):
            size = choose.randrange(1, 12)
            lines.add(STDOUT, written[position : position + size])
            position = min(len(written), position + size)
        ready = written[:position].count(b"\n") + choose.choice([0, 0, 1])
        while logged < min(ready, len(whole)) and choose.random() < 0.8:
            items += lines.take(STDOUT, whole[logged])
            logged += 1
        if choose.random() < 0.3:
            ended = sum(map(len, whole[:logged]))
            if position < ended:
                lines.add(STDOUT, written[position:ended])
                position = ended
            while logged < min(written[:position].count(b"\n"), len(whole)):
                items += lines.take(STDOUT, whole[logged])
                logged += 1
            items += quiet(lines, clock)
    if rest:
        items += lines.take(STDOUT, rest)
    items += lines.end()
    text = [line.decode("utf-8", "replace") for line in [*whole, rest] if line]
    assert joined(items) == text


def test_text_without_a_newline_is_shown_after_a_while(clock: ManualClock) -> None:
    lines = OpenLines(BOTH, clock)
    lines.attached()
    lines.add(STDOUT, b"10%")
    assert lines.take_pieces() == []
    assert lines.seconds_to_wait() == pytest.approx(0.2)
    clock.now += 0.15
    lines.add(STDOUT, b" 20%")  # More text does not delay the text before it.
    clock.now += 0.06
    (piece,) = lines.take_pieces()
    assert (type(piece), piece) == (PartialLine, "10% 20%")
    assert lines.seconds_to_wait() is None
    lines.add(STDOUT, b" done\n")
    assert lines.take(STDOUT, b"10% 20% done\n") == [" done\n"]


def test_text_waits_for_the_lines_before_it(clock: ManualClock) -> None:
    lines = OpenLines(BOTH, clock)
    lines.attached()
    lines.add(STDOUT, b"first\nsecond\n10%")
    assert quiet(lines, clock) == []
    assert lines.take(STDOUT, b"first\n") == ["first\n"]
    assert quiet(lines, clock) == []
    assert lines.take(STDOUT, b"second\n") == ["second\n"]
    assert quiet(lines, clock) == ["10%"]


def test_line_of_which_the_client_has_the_end_alone_is_repeated_whole(clock: ManualClock) -> None:
    lines = OpenLines(BOTH, clock)
    lines.attached()
    lines.add(STDOUT, b"30%")
    assert quiet(lines, clock) == ["30%"]
    lines.add(STDOUT, b"\n")
    assert lines.take(STDOUT, b"10% 20% 30%\n") == ["\r10% 20% 30%\n"]
    lines.add(STDOUT, b"next")
    assert quiet(lines, clock) == ["next"]


def test_client_that_was_lost_shows_the_next_line_again(clock: ManualClock) -> None:
    lines = OpenLines(BOTH, clock)
    lines.attached()
    lines.add(STDOUT, b"a")
    assert quiet(lines, clock) == ["a"]
    lines.attached()
    lines.add(STDOUT, b"c")
    assert quiet(lines, clock) == []  # Text between "a" and "c" may be missing.
    lines.add(STDOUT, b"d\n")
    assert lines.take(STDOUT, b"abcd\n") == ["bcd\n"]
    lines.add(STDOUT, b"next")
    assert quiet(lines, clock) == ["next"]


def test_lines_of_both_streams_do_not_mix(clock: ManualClock) -> None:
    lines = OpenLines(BOTH, clock)
    lines.attached()
    lines.add(STDERR, b"10%")
    items = quiet(lines, clock)
    lines.add(STDOUT, b"out\n")
    items += lines.take(STDOUT, b"out\n")
    lines.add(STDERR, b"\r20%\n")
    items += lines.take(STDERR, b"10%\r20%\n")
    assert joined(items + lines.end()) == ["10%", "out\n", "\r20%\n"]


def test_lines_that_the_log_has_lost_hold_up_no_text_for_ever(clock: ManualClock) -> None:
    lines = OpenLines(BOTH, clock)
    lines.attached()
    lines.add(STDOUT, b"in step")
    assert quiet(lines, clock) == ["in step"]
    lines.add(STDOUT, b"\nlost\nseen\n10%")
    lines.take(STDOUT, b"in step\n")
    lines.take(STDOUT, b"seen\n")
    found = [quiet(lines, clock) for _ in range(12)]
    assert [items for items in found if items] == [["10%"]]


# -- The tests below run the relay process.


class Engine:
    """An engine that answers one request to attach a client."""

    def __init__(self, path: Path) -> None:
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen()
        self.path = str(path)
        self.requests: list[bytes] = []

    def accept(self, answer: bytes) -> socket.socket:
        connection, _ = self.server.accept()
        connection.settimeout(60)
        self.requests.append(connection.recv(4096))
        connection.sendall(answer)
        return connection


@pytest.fixture
def engine() -> Iterator[Engine]:
    # The path of a socket has at most 107 bytes, and tmp_path may be longer.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        engine = Engine(Path(folder, "engine.sock"))
        yield engine
        engine.server.close()


def start(engine: Engine) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-I",
        "-S",
        relay.__file__,
        engine.path,
        "/v1.43/containers/x/attach",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_output_is_copied(engine: Engine) -> None:
    process = start(engine)
    with engine.accept(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\nfirst ") as connection:
        connection.sendall(b"second")
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"\nfirst second", b"", 0)
    assert engine.requests[0].startswith(b"POST /v1.43/containers/x/attach HTTP/1.1\r\n")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 409 Conflict\r\n\r\n", b"", b"x" * 100_000])
def test_refusal_of_the_engine_has_no_output(engine: Engine, answer: bytes) -> None:
    process = start(engine)
    try:
        engine.accept(answer).close()
    except BrokenPipeError:
        pass
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"", b"", 1)


def test_follower_that_does_not_read_holds_up_no_container(engine: Engine) -> None:
    process = start(engine)
    connection = engine.accept(b"HTTP/1.1 200 OK\r\n\r\n")
    sent = 0
    with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while sent < 100 << 20:
            sent += connection.send(b"x" * 65536)
    assert relay.MOST_BYTES <= sent < 100 << 20
    assert process.wait(timeout=60) == 0
    process.communicate()


@pytest.mark.parametrize("size", [4096, 65535, 65536])
def test_a_full_pipe_is_the_end_however_the_data_arrives(engine: Engine, size: int) -> None:
    process = start(engine)
    connection = engine.accept(b"HTTP/1.1 200 OK\r\n\r\n")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"\n"  # then the data may fill the pipe to its last byte
    with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(2 * relay.MOST_BYTES // size):
            connection.sendall(b"x" * size)
    assert process.wait(timeout=60) == 0
    process.communicate()


def test_process_ends_with_its_follower(engine: Engine) -> None:
    process = start(engine)
    connection = engine.accept(b"HTTP/1.1 200 OK\r\n\r\n")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert connection.recv(1) == b""
    connection.close()
    process.communicate()


def test_process_reads_while_output_waits(engine: Engine) -> None:
    process = start(engine)
    connection = engine.accept(b"HTTP/1.1 200 OK\r\n\r\n")
    data = bytes(range(256)) * (relay.MOST_BYTES // 512)
    sender = threading.Thread(target=lambda: (connection.sendall(data), connection.close()))
    sender.start()
    sender.join(60)
    assert not sender.is_alive()
    out, _ = process.communicate(timeout=60)
    assert out == b"\n" + data
