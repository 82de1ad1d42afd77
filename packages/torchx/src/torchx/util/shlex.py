"""Shell quoting."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def join(split_command: Iterable[str]) -> str:
    """Return the words as one line that a POSIX shell splits into them again."""
    return shlex.join(split_command)
