"""Checks, measures and configures the user's terminal for a command in a replica."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from torchx_specs.errors import RequestError
from torchx_specs.schedulers.sessions import TerminalSize

STDIN, STDOUT, STDERR = 0, 1, 2


def is_terminal(fd: int) -> bool:
    """Return True if a descriptor is open and is a terminal."""
    try:
        return os.isatty(fd)
    except OSError:
        return False


def check_terminal(wants_input: bool) -> None:
    """Raise an error unless standard output is a terminal.

    Args:
        wants_input: Whether standard input must be a terminal, too.

    Raises:
        RequestError: A stream is not a terminal.
    """
    for name, fd in (("input", STDIN), ("output", STDOUT)):
        if not is_terminal(fd) and (wants_input or fd == STDOUT):
            raise RequestError(f"-t needs a terminal, and standard {name} is none; leave out -t")


def terminal_size() -> TerminalSize:
    """Return the size of the user's terminal, or a default size if it is unknown."""
    for fd in (STDOUT, STDIN, STDERR):
        try:
            size = os.get_terminal_size(fd)
        except OSError:
            continue
        if size.columns and size.lines:
            return TerminalSize(size.columns, size.lines)
    return TerminalSize()


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode, in which each key reaches the program; restore it at the end.

    If standard input is not a terminal, nothing changes.
    """
    if not is_terminal(STDIN):
        yield
        return
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
