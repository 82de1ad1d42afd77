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
BARS = """
echo begins
for percent in 10 20 30; do printf '\\r%s%%' $percent; sleep 0.1; done
while [ ! -e "$0" ]; do sleep 0.05; done
printf '\\r100%%\\n'
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
        # the job writes the newline only once `goes_on` exists
        screen.expect_lines(lambda lines: lines[-1:] == ["sh/0 100%"])
        assert sum("%" in line for line in screen.lines) == 1
        goes_on.touch()
        assert screen.finish() == 0
    assert [line for line in screen.lines if "%" in line] == ["sh/0 100%"]


def test_ctrl_c_leaves_the_last_state_of_a_progress_bar(
    submit: Callable[..., str], on_terminal: Any, torchx: Any, tmp_path: Path
) -> None:
    handle = submit(PROGRESS, tmp_path / "never")
    with on_terminal("log", "-f", handle) as screen:
        screen.expect_lines(lambda lines: lines[-1:] == ["sh/0 100%"])
        screen.interrupt()
        assert screen.finish() == 130
    assert [line for line in screen.lines if "%" in line] == ["sh/0 100%"]
    assert not screen.screen.cursor.hidden
    assert torchx("cancel", handle).returncode == 0


@pytest.mark.gate
def test_bars_of_many_replicas_stay_below_finished_lines(on_terminal: Any, tmp_path: Path) -> None:
    goes_on = tmp_path / "goes_on"
    replicas = [f"sh/{k}" for k in range(14)]
    words = ["--workspace", "", "utils.sh", "--num_replicas", str(len(replicas))]
    program = ["--", "sh", "-c", BARS, str(goes_on)]
    with on_terminal("run", "-s", "local_cwd", *words, *program) as screen:
        region = [*(f"{replica} 30%" for replica in replicas[:12]), "… 2 more"]
        screen.expect_lines(lambda lines: lines[-13:] == region)
        above = screen.lines[:-13]
        assert sorted(line for line in above if "begins" in line) == sorted(
            f"{replica} begins" for replica in replicas
        )
        assert not any("%" in line for line in above)
        goes_on.touch()
        assert screen.finish() == 0
    bars = [line for line in screen.lines if "%" in line]
    assert sorted(bars) == sorted(f"{replica} 100%" for replica in replicas)
    assert screen.lines[-1].startswith("torchx: job finished: SUCCEEDED")
    assert not any("more" in line for line in screen.lines)
    assert not screen.screen.cursor.hidden


def test_a_user_watches_a_job_and_reads_its_log_after_it_was_deleted(
    submit: Callable[..., str], torchx: Any, on_terminal: Any, tmp_path: Path
) -> None:
    config = tmp_path / "work" / ".torchxconfig"
    note = tmp_path / "note"
    config.write_text(
        f"[log_sink:disk]\nurl = file://{tmp_path}/copies\n"
        f"[notifier:file]\ntype = command\ncommand = cp /dev/stdin {note}\n"
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
