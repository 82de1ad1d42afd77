"""Tests of showing the progress of steps, in a process with a pseudoterminal or a pipe."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from textwrap import dedent

import pytest

from torchx_cli.output.progress import amount
from torchx_kit.progress import Step

#: A program that shows a step with two reports. Its arguments are the output format, the log level
#: and the delay of bars; with a fourth argument, the program sleeps between the reports.
PROGRAM = dedent(
    """
    import sys, time
    from torchx_cli import logging_setup
    from torchx_cli.output import progress as display
    from torchx_kit import progress

    logging_setup.configure(sys.argv[2])
    progress.LOG_INTERVAL = 0.0
    display._DELAY = float(sys.argv[3])
    display._DRAW_SECONDS = 0.0
    with display.shown_progress(sys.argv[1]):
        with progress.Step("pulling [red]a\\x1b[2J:1", 2_000_000) as step:
            step.advance(1_000_000)
            print("reported", flush=True)
            if len(sys.argv) > 4:
                time.sleep(600)
            step.advance(1_000_000)
    """
)


def shown(
    output_format: str = "table",
    level: str = "INFO",
    delay: float = 0.0,
    terminal: bool = True,
    interrupt: bool = False,
    **env: str,
) -> tuple[int, str]:
    """Run the program; return its exit code and its standard error."""
    leader, follower = pty.openpty()
    argv = [sys.executable, "-c", PROGRAM, output_format, level, str(delay)]
    process = subprocess.Popen(
        argv + ["sleep"] * interrupt,
        stdout=subprocess.PIPE,
        stderr=follower if terminal else subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", **env},
        text=True,
    )
    os.close(follower)
    assert process.stdout is not None
    assert process.stdout.readline() == "reported\n"
    if interrupt:
        process.send_signal(signal.SIGINT)
    text = ""
    if terminal:
        try:
            while part := os.read(leader, 1 << 16):
                text += part.decode()
        except OSError:  # the program has closed the terminal
            pass
    # Not communicate(): it would lose what readline() has read ahead.
    process.stdout.read()
    err = process.stderr.read() if process.stderr is not None else ""
    code = process.wait(timeout=60)
    os.close(leader)
    return code, text or err


def test_terminal_shows_a_bar_with_bytes() -> None:
    code, text = shown()
    assert code == 0
    assert f"{'━' * 15}{' ' * 15} 1.0 MB of 2.0 MB" in text
    assert f"{'━' * 30} 2.0 MB of 2.0 MB" in text
    assert "pulling [red]a\\u001b[2J:1" in text


@pytest.mark.parametrize(
    ("terminal", "term"), [(False, "xterm"), (True, "dumb")], ids=["pipe", "dumb"]
)
def test_without_a_usable_terminal_there_are_lines(terminal: bool, term: str) -> None:
    code, text = shown(terminal=terminal, TERM=term, NO_COLOR="")
    assert code == 0
    assert (
        "torchx: " if terminal else "INFO     "
    ) + "pulling [red]a\\u001b[2J:1: 1,000,000 of 2,000,000 bytes" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("output_format", "level"), [("json", "INFO"), ("yaml", "INFO"), ("table", "WARNING")]
)
def test_nothing_is_shown_for_programs_and_at_higher_log_levels(
    output_format: str, level: str
) -> None:
    assert shown(output_format, level) == (0, "")
    assert shown(output_format, level, terminal=False) == (0, "")


def test_short_steps_have_no_bar() -> None:
    assert shown(delay=60.0) == (0, "")


def test_interrupt_leaves_the_bar_and_a_cursor_below_it() -> None:
    code, text = shown(interrupt=True)
    assert code == -signal.SIGINT
    last_bar = text.rpartition("1.0 MB of 2.0 MB")[2]
    assert "\n" in last_bar
    assert "\x1b[1F" not in last_bar  # the cursor is not moved up again


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step("x"), "0 B"),
        (Step("x", 1500), "0 B of 1.5 kB"),
        (Step("x", unit="files"), "0 files"),
        (Step("x", 7, "files"), "0 of 7 files"),
    ],
)
def test_amount_has_the_unit(step: Step, text: str) -> None:
    assert amount(step) == text
