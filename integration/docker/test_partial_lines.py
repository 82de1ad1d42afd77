"""Tests that a follower receives text before its newline is written, on a real engine."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker_engine import BUSYBOX, PYTHON

from patience import PATIENCE, wait_for
from torchx_sched_docker.logs import relay
from torchx_sched_docker.scheduler import DockerScheduler
from torchx_specs import AppDef, AppState, BindMount, Role
from torchx_specs.model.app import RetryPolicy
from torchx_specs.schedulers import DescribeAppResponse, Stream
from torchx_specs.schedulers.log_items import PartialLine

Ended = Callable[[str], DescribeAppResponse]

#: This program writes a line, then each digit without a newline until the test has received the
#: digit, then the end of this line, and a last line.
PROGRESS = """
import os, time
print("first line", flush=True)
for i in range(10):
    while not os.path.exists(f"/seen/{i}"):
        print(f"{i}\\r", end="", flush=True)
        time.sleep(0.1)
print(" done", flush=True)
print("last line", flush=True)
"""


def submit(scheduler: DockerScheduler, image: str, *command: str, **role: Any) -> str:
    app = AppDef("app", [Role("main", image, entrypoint=command[0], args=[*command[1:]], **role)])
    return scheduler.submit(app, {})


def follow(
    scheduler: DockerScheduler, app_id: str, seen: Path | None = None, **options: Any
) -> list[str]:
    """Follow a log to its end, and return the items.

    Args:
        scheduler: The scheduler of the app.
        app_id: The app's id.
        seen: A folder. Each incomplete line creates a file with the name of its last character.
        options: Further arguments of ``log_iter``.
    """
    items = []
    for item in scheduler.log_iter(app_id, "main", should_tail=True, partial=True, **options):
        items.append(item)
        if seen is not None and isinstance(item, PartialLine):
            (seen / item.strip()[-1:]).touch()
    return items


def joined(items: list[str]) -> str:
    text = ""
    for item in items:
        if not isinstance(item, PartialLine):
            assert item[-1:] in ("\n", "")
            if item.startswith("\r"):  # The whole line replaces its pieces.
                text, item = text[: text.rfind("\n") + 1], item[1:]
        text += item
    return text


def relays() -> list[str]:
    """Return the command lines of the running relay processes, which attach to containers."""
    found = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if relay.__file__ in line]


def test_progress_is_shown_while_it_is_written(scheduler: DockerScheduler, tmp_path: Path) -> None:
    mounts = [BindMount(str(tmp_path), "/seen")]
    app_id = submit(scheduler, PYTHON, "python3", "-c", PROGRESS, mounts=mounts)
    items = follow(scheduler, app_id, tmp_path)
    whole = "".join(scheduler.log_iter(app_id, "main"))
    assert whole.count("\n") == 3
    assert joined(items) == whole
    wait_for(lambda: not relays())


def test_follower_that_comes_later_shows_the_line_that_is_written(
    scheduler: DockerScheduler, tmp_path: Path
) -> None:
    repeat = "printf begin; until [ -e /seen/x ]; do printf x; touch /seen/begun; sleep 0.1; done"
    mounts = [BindMount(str(tmp_path), "/seen")]
    script = f"echo old; {repeat}; echo ' end'; echo last"
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script, mounts=mounts)
    wait_for((tmp_path / "begun").exists)
    first, *pieces, line, last = follow(scheduler, app_id, tmp_path)
    # The follower attached after "begin". The engine's log has the whole line after its newline.
    assert (first, set("".join(pieces)), last) == ("old\n", {"x"}, "last\n")
    assert re.fullmatch(r"\rbeginx+ end\n", line)


def test_streams_are_followed_apart(scheduler: DockerScheduler, tmp_path: Path) -> None:
    script = "until [ -e /seen/o ]; do printf o; printf e >&2; sleep 0.1; done; echo; echo >&2"
    mounts = [BindMount(str(tmp_path), "/seen")]
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script, mounts=mounts)
    assert re.fullmatch(r"o+\n", joined(follow(scheduler, app_id, tmp_path, streams=Stream.STDOUT)))
    # The container has ended, so its log has the whole line.
    [errors] = follow(scheduler, app_id, streams=Stream.STDERR)
    assert re.fullmatch(r"e+\n", errors)


def test_pieces_go_on_after_a_restart_of_a_replica(
    scheduler: DockerScheduler, ended: Ended, tmp_path: Path
) -> None:
    count = "$TORCHX_RESTART_COUNT"
    wait = f"until [ -e /seen/{count} ]; do printf {count}; sleep 0.1; done"
    script = f"{wait}; echo; exit $((1 - {count}))"
    role = {"max_retries": 1, "retry_policy": RetryPolicy.REPLICA}
    mounts = [BindMount(str(tmp_path), "/seen")]
    app_id = submit(scheduler, BUSYBOX, "sh", "-c", script, mounts=mounts, **role)
    items = follow(scheduler, app_id, tmp_path)
    assert joined(items) == "".join(scheduler.log_iter(app_id, "main"))
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
        assert lines.get(timeout=PATIENCE).startswith("'.")
        os.kill(process.pid, signal.SIGSTOP)  # Stop the follower, as Ctrl-Z does.
        (tmp_path / "open").touch()
        assert ended(app_id).state == AppState.SUCCEEDED
        wait_for(lambda: not relays())  # The relay ends although the follower is stopped.
    finally:
        process.kill()
        process.wait()
