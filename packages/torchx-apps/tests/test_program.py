"""Tests of the programs' exit codes and error messages, and of the modules that they import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchx_apps.program import ProgramError, one_line

PROGRAMS = ["booth", "copy", "process_monitor", "serve"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProgramError("two\nlines"), "two lines"),
        (FileNotFoundError(2, "No such file or directory", "x"), "No such file or directory: x"),
        (FileNotFoundError("s3://x"), "no such file: s3://x"),
        (PermissionError("x"), "PermissionError: x"),
        (KeyError("x"), "KeyError: 'x'"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_one_line_of_an_error(error: Exception, text: str) -> None:
    assert one_line(error) == text


def process(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"from torchx_apps.program import run\ndef main(argv):\n    {body}\nrun(main, 'prog')"
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    ("body", "code", "error"),
    [
        ("print('fine')", 0, ""),
        ("raise ValueError('two\\nlines')", 1, "prog: error: ValueError: two lines\n"),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_run_exit_code_and_error(body: str, code: int, error: str) -> None:
    done = process(body, TORCHX_DEBUG="0")
    assert (done.returncode, done.stderr) == (code, error)


def test_torchx_debug_prints_the_traceback() -> None:
    done = process("raise ValueError('x')", TORCHX_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_of_each_program(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"torchx_apps.{program}", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: torchx_apps.{program} ")
    assert done.stderr == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_start_of_a_program_loads_few_modules(program: str) -> None:
    code = (
        f"import sys, torchx_apps.{program};"
        "print(sorted({'torch', 'fsspec', 'asyncio', 'typing_extensions'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
