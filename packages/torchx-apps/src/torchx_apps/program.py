"""What the programs of this package have in common: arguments in, one line and an exit code out.

Exit codes: 0 done, 1 the work failed, 2 the arguments are wrong, 128+n ended by signal n.
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
    """A program cannot do what it was asked to do; the message is one line for the user."""


class ArgumentParser(argparse.ArgumentParser):
    """An argument parser whose error is one line: in a job's log a usage text buries it."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def positive_int(text: str) -> int:
    """Reads an integer of at least 1, for ``argparse``'s ``type=``."""
    return int(_positive(text, int))


def positive_float(text: str) -> float:
    """Reads a number greater than 0, for ``argparse``'s ``type=``."""
    return _positive(text, float)


def not_negative_float(text: str) -> float:
    """Reads a number of at least 0, for ``argparse``'s ``type=``."""
    value = _number(text, float)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text}")
    return value


def _positive(text: str, kind: Callable[[str], float]) -> float:
    value = _number(text, kind)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be greater than 0, got {text}")
    return value


def _number(text: str, kind: Callable[[str], float]) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if value != value:  # NaN, typed or made above: nothing can be compared with it
        expected = "an integer" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


def run(main: Callable[[list[str]], None], prog: str) -> NoReturn:
    """Runs a program's ``main`` as a process: an exception becomes one line and exit code 1.

    Set ``TORCHX_DEBUG=1`` to see the traceback instead.

    Args:
        main: The program's ``main(argv)``.
        prog: Its name in messages, e.g. ``torchx_apps.copy``.
    """
    for stream in (sys.stdout, sys.stderr):  # a file's name may hold bytes that are not UTF-8
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
    """An exception as one line: what it says, and its type where the text alone means little."""
    text = " ".join(str(error).split())
    if isinstance(error, ProgramError):
        return text
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, FileNotFoundError) and text:
        return f"no such file: {text}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
