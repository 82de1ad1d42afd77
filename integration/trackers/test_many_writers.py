"""Tests of 64 processes that write to one run 200 times each; one test kills half of them."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchx_specs.trackers.api import TrackerBase
from torchx_tracker.trackers import build_tracker

WRITER = Path(__file__).with_name("many_writers.py")
WRITERS = 64
TIMES = 200


def start(config: str, count: int, times: int, folder: Path) -> list[subprocess.Popen[str]]:
    """Start writers, and wait until each of them is ready for :func:`start_writing`."""
    folder.mkdir()
    started = [
        subprocess.Popen(
            [sys.executable, str(WRITER), config, str(number), str(times), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return started


def start_writing(writers: list[subprocess.Popen[str]]) -> None:
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def turns_done(folder: Path, number: int) -> int:
    try:
        return int((folder / str(number)).read_text() or 0)
    except FileNotFoundError:
        return 0


def check_run(tracker: TrackerBase, finished: dict[int, int], killed: set[int]) -> None:
    """Check that the run holds each completed turn, and at most one more of each killed process."""
    metadata = tracker.metadata("run")
    artifacts = tracker.artifacts("run")
    sources = {source.artifact_name for source in tracker.sources("run")}
    for number, turns in finished.items():
        for turn in range(turns):
            assert metadata[f"{number}-{turn}"] == "x" * 200
            artifact = artifacts[f"artifact-{number}-{turn}"]
            assert (artifact.path, artifact.metadata) == (f"/{number}/{turn}", {"turn": turn})
            if turn % 20 == 0:
                assert f"{number}-{turn}" in sources
    completed = sum(finished.values())
    linked = sum(len(range(0, turns, 20)) for turns in finished.values())
    assert completed <= len(metadata) <= completed + len(killed)
    assert completed <= len(artifacts) <= completed + len(killed)
    assert linked <= len(sources) <= linked + len(killed)


def test_no_write_is_lost_or_incomplete(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "root"
    root.mkdir()
    config = f"protocol=file;root_path={root}"
    folder = tmp_path / "done"
    writers = start(config, WRITERS, TIMES, folder)
    tracker = build_tracker("fsspec", config)
    start_writing(writers)
    reads = 0
    with caplog.at_level(logging.WARNING):
        while any(process.poll() is None for process in writers):
            metadata = tracker.metadata("run")
            assert all(value == "x" * 200 for value in metadata.values())
            reads += 1
        for process in writers:
            process.communicate()
            assert process.returncode == 0
        assert len(tracker.metadata("run")) == WRITERS * TIMES
        assert len(tracker.artifacts("run")) == WRITERS * TIMES
        check_run(tracker, dict.fromkeys(range(WRITERS), TIMES), set())
    assert reads > 0
    assert not caplog.records


def test_killed_writer_leaves_the_last_complete_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    config = f"protocol=file;root_path={root}"
    folder = tmp_path / "done"
    writers = start(config, WRITERS, TIMES, folder)
    generator = random.Random(7)  # noqa: S311 - no secret
    killed = set(generator.sample(range(WRITERS), WRITERS // 2))
    kill_after = {number: generator.randrange(1, TIMES - 20) for number in killed}
    start_writing(writers)
    waiting = set(killed)
    while waiting:
        for number in list(waiting):
            if turns_done(folder, number) >= kill_after[number]:
                os.kill(writers[number].pid, signal.SIGKILL)
                waiting.discard(number)
    for process in writers:
        process.communicate()
    ended = {number for number in killed if writers[number].returncode == -signal.SIGKILL}
    assert len(ended) > WRITERS // 4, "too few writers were killed before they had finished"
    finished = {number: turns_done(folder, number) for number in range(WRITERS)}
    assert all(finished[number] == TIMES for number in range(WRITERS) if number not in ended)
    with caplog.at_level(logging.WARNING):
        check_run(build_tracker("fsspec", config), finished, ended)
    assert not caplog.records
