"""Argument parsing, error messages and exit codes of the programs in this package.

Exit codes: 0 for success, 1 if the work failed, 2 for invalid arguments, 130 after Ctrl-C, 128+n if
signal n ended the program. ``process_monitor`` also exits with the codes of its own program.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class ProgramError(Exception):
    """A program failed; the message is one line."""


class ArgumentParser(argparse.ArgumentParser):
    """An argument parser that prints errors on one line, without a usage text.

    The usage text would hide the error in a log.
    """

    def error(self, message: str) -> NoReturn:
        """Print the message on one line and exit with code 2."""
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def positive_int(text: str) -> int:
    """Parse an integer of at least 1; a ``type`` for argparse."""
    return int(_number(text, int))


def positive_float(text: str) -> float:
    """Parse a number greater than 0; a ``type`` for argparse."""
    return _number(text, float)


def not_negative_float(text: str) -> float:
    """Parse a number of at least 0; a ``type`` for argparse."""
    return _number(text, float, may_be_zero=True)


def _number(text: str, kind: Callable[[str], float], *, may_be_zero: bool = False) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if value != value:  # NaN
        expected = "an integer" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    if value < 0 or (value == 0 and not may_be_zero):
        rule = "must not be negative" if may_be_zero else "must be greater than 0"
        raise argparse.ArgumentTypeError(f"{rule}, got {text}")
    return value


def run(main: Callable[[list[str]], None], prog: str) -> NoReturn:
    """Run a program's ``main`` and exit; print an exception as one line and exit with code 1.

    Ctrl-C prints nothing, and the exit code is 130. Set ``TORCHX_DEBUG=1`` to print the traceback
    of an exception instead.

    Args:
        main: The program's ``main(argv)``.
        prog: Name of the program in messages, for example ``torchx_apps.copy``.
    """
    for stream in (sys.stdout, sys.stderr):  # file names may not be UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if os.environ.get("TORCHX_DEBUG", "0") not in ("", "0"):
            raise
        print(f"{prog}: error: {one_line(error)}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def one_line(error: BaseException) -> str:
    """Return an error as one line; unless its text is clear by itself, begin with its type."""
    text = " ".join(str(error).split())
    if isinstance(error, ProgramError):
        return text
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, FileNotFoundError) and text:
        return f"no such file: {text}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
