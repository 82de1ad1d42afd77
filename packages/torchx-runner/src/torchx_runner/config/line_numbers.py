"""Finds the line of a configuration file on which each key is set."""

from __future__ import annotations

import re

_SECTION = re.compile(r"\[(?P<name>.+)\]")
_KEY = re.compile(r"(?P<key>[^\s#;:=][^:=]*?)\s*(?:[:=]|$)")


def key_lines(text: str) -> dict[tuple[str, str], int]:
    r"""Return the line on which each key is set, by section and key; the first line is 1.

    >>> key_lines("[slurm]\nqueue = a\n  b\n[DEFAULT]\nx = 1")
    {('slurm', 'queue'): 2, ('DEFAULT', 'x'): 5}

    Args:
        text: The content of the file, which must not be malformed.
    """
    lines: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line[:1].isspace():
            continue  # the line continues a value, or is empty
        header = _SECTION.match(line)
        if header:
            section = header["name"]
            continue
        found = _KEY.match(line)
        if found:
            lines.setdefault((section, found["key"]), number)
    return lines
