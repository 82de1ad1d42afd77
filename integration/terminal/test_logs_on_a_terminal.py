"""Tests of logs of local jobs on a terminal: progress bars, hostile text, copies, watching."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRESS = """
import sys, time
for percent in range(0, 101, 20):
    sys.stdout.write(f"\\r{percent}%")
    sys.stdout.flush()
    time.sleep(0.3)
input_file = sys.argv[1]
while True:
    try:
        open(input_file).close()
        break
    except FileNotFoundError:
        time.sleep(0.05)
print()
"""
# Everything that a terminal obeys, except colours, tabs, newlines and carriage returns.
_CONTROL = re.compile(
    r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@pytest.fixture
def submit(torchx: Any, tmp_path: Path) -> Callable[..., str]:
    """Return a function that starts a program in the background and returns its handle."""

    def run(code: str, *arguments: object) -> str:
        program = tmp_path / "program.py"
        program.write_text(code)
        words = ["utils.sh", "--", sys.executable, program, *arguments]
        done = torchx("run", "-s", "local_cwd", "--detach", *words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    return run


def test_progress_bar_is_updated_in_place_before_its_newline(
    submit: Callable[..., str], on_terminal: Any, tmp_path: Path
) -> None:
    goes_on = tmp_path / "goes_on"
    handle = submit(PROGRESS, goes_on)
    with on_terminal("log", "-f", handle) as screen:
        screen.expect("100%")  # the job writes the newline only once `goes_on` exists
        goes_on.touch()
        assert screen.finish() == 0
    bar = screen.shown[screen.shown.index("\rsh/0 ") :]
    assert bar.count("\n") == 1
    assert bar.endswith("\rsh/0 100%\n")


def test_a_user_watches_a_job_and_reads_its_log_after_it_was_deleted(
    submit: Callable[..., str], torchx: Any, on_terminal: Any, tmp_path: Path
) -> None:
    config = tmp_path / "work" / ".torchxconfig"
    note = tmp_path / "note"
    config.write_text(
        f"[log_sinks]\ndisk = file://{tmp_path}/copies\n"
        f"[notifiers:file]\ntype = command\ncommand = cp /dev/stdin {note}\n"
    )
    goes_on = tmp_path / "goes_on"
    handle = submit(PROGRESS, goes_on)
    with on_terminal("watch", "--interval", "1s", "--save", "--notify", "file", "@1") as screen:
        screen.expect(f"{handle} sh RUNNING")
        goes_on.touch()
        screen.expect(f"{handle} sh SUCCEEDED after")
        assert screen.finish() == 0
    assert note.read_text().startswith("sh SUCCEEDED after")
    assert torchx("delete", handle).returncode == 0
    with on_terminal("log", "@1") as screen:
        assert screen.finish() == 0
    assert f"{handle} no longer exists" in screen.shown
    assert "100%\n" in screen.shown
