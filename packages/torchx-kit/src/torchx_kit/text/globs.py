"""Shell patterns for paths."""

from __future__ import annotations

import re
from collections.abc import Callable


class Glob:
    """A pattern of :mod:`fnmatch`, in which ``**/`` matches any number of folders.

    Args:
        pattern: The pattern.
        wildcard: The regular expression for ``?`` and for each character that ``*`` matches. ``**``
            matches any characters.
    """

    __slots__ = ("matches",)

    def __init__(self, pattern: str, wildcard: str = ".") -> None:
        parts = re.split(r"(?:(?<=/)|\A)(?:\*\*/)+", pattern)
        text = "(?:.*/)?".join(_translate(part, wildcard) for part in parts)
        #: Called with a path; the result is true if the pattern matches the whole path.
        self.matches: Callable[[str], object] = re.compile(f"(?s:{text})\\Z").match


def _translate(glob: str, wildcard: str) -> str:
    out = ""
    i = 0
    while i < len(glob):
        c = glob[i]
        if c == "*":
            stars = len(glob) - i - len(glob[i:].lstrip("*"))
            out += f"{wildcard if stars == 1 else '.'}*"
            i += stars
            continue
        end = glob.find("]", i + (3 if glob[i + 1 : i + 2] == "!" else 2)) if c == "[" else -1
        if end > 0:
            out += _translate_set(glob[i + 1 : end])
            i = end
        else:
            out += wildcard if c == "?" else re.escape(c)
        i += 1
    return out


def _translate_set(body: str) -> str:
    """Return the expression for the text between brackets; a range like ``z-a`` is empty."""
    negated = body.startswith("!")
    chars = body[1:] if negated else body
    out = ""
    i = 0
    while i < len(chars):
        if chars[i + 1 : i + 2] == "-" and i + 2 < len(chars):
            if chars[i] <= chars[i + 2]:
                out += f"{re.escape(chars[i])}-{re.escape(chars[i + 2])}"
            i += 3
        else:
            out += re.escape(chars[i])
            i += 1
    if not out:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{out}]"
