"""Tests that a follower receives text before its newline is written, on a real engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker_engine import BUSYBOX, PYTHON

from patience import wait_for
from torchx_sched_docker.logs import relay
from torchx_sched_docker.scheduler import DockerScheduler
from torchx_specs import AppDef, BindMount, Role
from torchx_specs.model.app import RetryPolicy
from torchx_specs.schedulers import DescribeAppResponse
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
