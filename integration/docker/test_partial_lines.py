"""Tests that a follower receives text before its newline is written, on a real engine."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker_engine import BUSYBOX, PYTHON

from torchx_sched_docker.logs import relay
from torchx_sched_docker.scheduler import DockerScheduler
from torchx_specs import AppDef, AppState, BindMount, Role
from torchx_specs.model.app import RetryPolicy
from torchx_specs.schedulers import DescribeAppResponse, Stream
from torchx_specs.schedulers.log_items import PartialLine

Ended = Callable[[str], DescribeAppResponse]

#: This program writes a line, then the time ten times without a newline, then the end of this line,
#: and a last line.
PROGRESS = """
import time
time.sleep(1)
print("first line", flush=True)
for i in range(10):
    print(f"\\r{i} {time.time()!r}", end="", flush=True)
    time.sleep(0.5)
print(" done", flush=True)
print("last line", flush=True)
"""


def submit(scheduler: DockerScheduler, image: str, *command: str, **role: Any) -> str:
    app = AppDef("app", [Role("main", image, entrypoint=command[0], args=[*command[1:]], **role)])
    return scheduler.submit(app, {})


def follow(scheduler: DockerScheduler, app_id: str, **options: Any) -> list[tuple[float, str]]:
    """Follow a log to its end, and return the items with the times of their arrival."""
    items = scheduler.log_iter(app_id, "main", should_tail=True, partial=True, **options)
    return [(time.time(), item) for item in items]


def joined(items: list[tuple[float, str]]) -> str:
    text = ""
    for _, item in items:
        text += item
        assert isinstance(item, PartialLine) or item[-1:] in ("\n", "")
    return text


def relays() -> list[str]:
    """Return the command lines of the running relay processes, which attach to containers."""
    found = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if relay.__file__ in line]


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)


def test_progress_is_shown_while_it_is_written(scheduler: DockerScheduler) -> None:
    app_id = submit(scheduler, PYTHON, "python3", "-c", PROGRESS)
    items = follow(scheduler, app_id)
    delays = [
        at - float(text.split()[-1])
        for at, text in items
        if isinstance(text, PartialLine) and text.startswith("\r")
    ]
    print("delays:", [round(delay, 2) for delay in delays])
    assert len(delays) >= 8
    assert sorted(delays)[len(delays) // 2] < 2  # An idle machine needs 0.2 seconds.
    whole = "".join(scheduler.log_iter(app_id, "main"))
    assert whole.count("\n") == 3
    assert joined(items) == whole
    until(lambda: not relays())


def test_follower_that_comes_later_shows_the_line_that_is_written(
    scheduler: DockerScheduler,
) -> None:
    script = "echo old; printf begin; sleep 3; printf ' middle'; sleep 3; echo ' end'; echo last"
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script)
    until(lambda: "old\n" in list(scheduler.log_iter(app_id, "main")))
    time.sleep(1)
    items = follow(scheduler, app_id)
    texts = [text for _, text in items]
    # The follower attached after "begin". The engine's log has the whole line after its newline.
    assert texts == ["old\n", " middle", "\rbegin middle end\n", "last\n"]


def test_streams_are_followed_apart(scheduler: DockerScheduler) -> None:
    script = "sleep 1; printf out; printf err >&2; sleep 2; echo; echo >&2"
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script)
    for stream, text in ((Stream.STDOUT, "out"), (Stream.STDERR, "err")):
        found = [item for _, item in follow(scheduler, app_id, streams=stream)]
        if stream == Stream.STDOUT:
            assert found == [text, "\n"]
        else:  # The container has ended, so its log has the whole line.
            assert found == [f"{text}\n"]


def test_pieces_go_on_after_a_restart_of_a_replica(
    scheduler: DockerScheduler, ended: Ended
) -> None:
    script = "sleep 1; printf 10; sleep 1; echo; sleep 1; exit $((1 - TORCHX_RESTART_COUNT))"
    app_id = submit(
        scheduler, BUSYBOX, "sh", "-c", script, max_retries=1, retry_policy=RetryPolicy.REPLICA
    )
    items = follow(scheduler, app_id)
    assert joined(items) == "".join(scheduler.log_iter(app_id, "main"))
    assert sum(isinstance(text, PartialLine) for _, text in items) >= 1
    ended(app_id)


def test_whole_lines_of_a_busy_writer_are_the_same(scheduler: DockerScheduler) -> None:
    script = "sleep 1; seq 50000; printf 10; sleep 1; printf 20; seq 50000"
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script)
    items = follow(scheduler, app_id)
    assert joined(items) == "".join(scheduler.log_iter(app_id, "main"))


STOPPED = """
from torchx_sched_docker.scheduler import create_scheduler
for item in create_scheduler("test").log_iter(sys.argv[1], "main", should_tail=True, partial=True):
    print(repr(item), flush=True)
"""


def test_stopped_follower_holds_up_no_job(
    scheduler: DockerScheduler, ended: Ended, tmp_path: Path
) -> None:
    script = "until [ -e /gate/open ]; do printf .; sleep 0.5; done; seq 2000000"  # 15 MB of output
    mounts = [BindMount(str(tmp_path), "/gate")]
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script, mounts=mounts)
    code = f"import sys; sys.path[:] = {sys.path!r}\n{STOPPED}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, app_id], stdout=subprocess.PIPE, text=True
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert process.stdout is not None
    threading.Thread(target=lambda: [lines.put(x) for x in process.stdout], daemon=True).start()
    try:
        until(relays)
        assert lines.get(timeout=60).startswith("'.")
        os.kill(process.pid, signal.SIGSTOP)  # Stop the follower, as Ctrl-Z does.
        (tmp_path / "open").touch()
        assert ended(app_id).state == AppState.SUCCEEDED
        until(lambda: not relays())  # The relay ends although the follower is stopped.
    finally:
        process.kill()
        process.wait(60)
