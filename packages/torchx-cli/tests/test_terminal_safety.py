"""Tests that text from outside, such as logs and names, cannot control a terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from torchx_cli.exit_codes import print_error
from torchx_cli.logging_setup import Formatter, configure
from torchx_cli.logs.reader import LogReader
from torchx_cli.output.terminal import SafeTerminal, escape_controls, safe_log_lines
from torchx_specs.schedulers.logs import LogQuery

ATTACKS = {
    "clear the screen": ("\033[2Jx", r"\u001b[2Jx"),
    "window title": ("\033]0;x\007", r"\u001b]0;x\u0007"),
    "hyperlink": ("\033]8;;http://x\033\\", "\\u001b]8;;http://x\\u001b\\"),
    "CSI in C1": ("\x9b2J", r"\u009b2J"),
    "device query": ("\033[6n", r"\u001b[6n"),
    "private mode": ("\033[?25l", r"\u001b[?25l"),
    "device control": ("\033Pq\033\\", "\\u001bPq\\u001b\\"),
    "incomplete colour": ("\033[31", r"\u001b[31"),
    "bell, backspace, delete": ("\a\b\x7f", r"\u0007\u0008\u007f"),
    "right to left": ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
    "escape before a colour": ("\033\033[31m", "\\u001b\033[31m"),
}
HARMLESS = [
    "",
    "plain\n",
    "\ttab\n",
    "é 日本 🎉\n",
    "\033[1;38;5;208mred\033[0m",
    "\033[m",
    "a\r\n",
]


@pytest.mark.parametrize("keep_returns", [True, False])
@pytest.mark.parametrize(("text", "safe"), ATTACKS.values(), ids=ATTACKS)
def test_control_characters_become_escapes(text: str, safe: str, keep_returns: bool) -> None:
    assert escape_controls(text, keep_returns=keep_returns) == safe


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert escape_controls(text) is text


def test_carriage_return_is_kept_in_logs_only() -> None:
    assert escape_controls("a\rb\r\n") == "a\\u000db\r\n"
    assert escape_controls("a\rb", keep_returns=True) == "a\rb"


def test_colours_of_a_log_line_end_with_the_line() -> None:
    lines = ["\033[31mred\n", "plain\n", "\033[8mhidden"]
    assert safe_log_lines(lines) == ["\033[31mred\033[0m\n", "plain\n", "\033[8mhidden\033[0m"]


class Terminal(io.BytesIO):
    """A stream in memory that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def read_log(stream: Any) -> None:
    def blocks(*args: Any, **kwargs: Any) -> Any:
        yield ("r\033[2J", 0), ["a\033[2J\n", "10%\r20%\n"]

    LogReader(blocks, "s://s/a", LogQuery(), stream).read_all([("r", 0)])


def test_log_is_safe_on_a_terminal_and_exact_elsewhere() -> None:
    terminal, file = Terminal(), io.StringIO()
    stream = io.TextIOWrapper(terminal, encoding="utf-8")
    safe = SafeTerminal(stream)
    read_log(safe)
    safe.release()
    name = r"r\u001b[2J/0"
    assert terminal.getvalue().decode() == f"{name} a\\u001b[2J\n{name} 10%\r{name} 20%\n"
    read_log(file)
    name = "r\033[2J/0"
    assert file.getvalue() == f"{name} a\033[2J\n{name} 10%\r{name} 20%\n"


def test_log_records_and_errors_are_safe(cli: Any) -> None:
    record = logging.makeLogRecord({"msg": "no queue %s", "args": ("\033]0;x\a",)})
    assert Formatter().format(record).endswith(r"no queue \u001b]0;x\u0007")
    error = cli("status", "\033[2J").error
    assert error.startswith(r"unknown app: \u001b[2J: no app has this name")
    assert "\033" not in cli("run", "--", "\033]0;x\acomp").err


def test_colours_of_a_message_end_with_it(cli: Any) -> None:
    record = logging.makeLogRecord({"msg": "no queue %s", "args": ("\033[8mx",)})
    assert Formatter().format(record).endswith("no queue \033[8mx\033[0m")
    assert cli("status", "\033[8mx").err.endswith("\033[0m\n")
    record = logging.makeLogRecord({"msg": "a \033[8mx\nb\n\033[1mc\n"})
    assert Formatter().format(record).endswith("a \033[8mx\033[0m\nb\n\033[1mc\033[0m\n")


def test_colours_on_a_terminal_end_with_their_line() -> None:
    terminal = Terminal()
    stream = io.TextIOWrapper(terminal, encoding="utf-8")
    safe = SafeTerminal(stream)
    print("name \033[8mx", "FAILED", file=safe)
    print("\033[31mred\033[0m", file=safe)
    print("\033[1ma\nb\033[30", "c\u2028d", "\033[30;40m", file=safe, end="")
    safe.write("\r\nno newline \033[7m")
    safe.release()
    assert terminal.getvalue().decode() == (
        "name \033[8mx FAILED\033[0m\n\033[31mred\033[0m\n"
        "\033[1ma\033[0m\nb\\u001b[30 c\u2028d \033[30;40m\033[0m\r\nno newline \033[7m\033[0m"
    )


def test_a_very_long_message_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("x" * 3_000_000)
    line = capsys.readouterr().err
    assert len(line) < 10_100
    assert line.endswith("x... (3,000,007 characters)\n")


def test_python_warning_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure("INFO")
        warnings.warn("slurm does not record\ntimes", stacklevel=1)
    root.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING  slurm does not record times")


COMMAND = r"""
import click
from torchx_specs.hookspecs import CommandPlugin, hookimpl

@click.command("attack")
def attack():
    from torchx_cli.output.printing import write_data
    click.echo("title \033]0;x\007 \033[31mred\033[0m")
    write_data({"name": "\u202e"}, "json")

@hookimpl
def torchx_commands():
    yield CommandPlugin("attack", attack)
"""


@pytest.mark.parametrize("on_terminal", [True, False])
def test_output_of_any_command_is_safe_on_a_terminal(tmp_path: Path, on_terminal: bool) -> None:
    (tmp_path / "attack.py").write_text(COMMAND)
    info = tmp_path / "attack-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: attack\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torchx]\nattack = attack\n")
    ours, theirs = pty.openpty() if on_terminal else os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONUTF8": "1"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "torchx_cli", "attack"]
    process = subprocess.Popen(command, stdout=theirs, env=environment, cwd=tmp_path)
    os.close(theirs)
    data = b""
    with contextlib.suppress(OSError):  # the terminal has no writer any more
        while piece := os.read(ours, 1 << 16):
            data += piece
    os.close(ours)
    assert process.wait(60) == 0
    text = data.decode().replace("\r\n", "\n")
    if on_terminal:
        assert text == 'title \\u001b]0;x\\u0007 \033[31mred\033[0m\n{"name": "\\u202e"}\n'
    else:
        # TorchX does not filter the output to a pipe. click removes the colours, but not the title.
        assert "\\u00" not in text
        assert '{"name": "\u202e"}' in text
