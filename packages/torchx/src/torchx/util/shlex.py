"""Joins arguments to a command line for a POSIX shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def join(split_command: Iterable[str]) -> str:
    """Return one line that a POSIX shell splits into these arguments."""
    return shlex.join(split_command)
