"""Shell patterns for paths."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

# Stars, a question mark, a set of characters such as `[!a-z]`, or another character.
_TOKEN = re.compile(r"\*+|\?|\[(?:!.|[^!])[^\]]*\]|.", re.DOTALL)


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
        text = "(?:.*/)?".join(
            "".join(_translate(item, wildcard) for item in _TOKEN.findall(part)) for part in parts
        )
        #: Called with a path; the result is true if the pattern matches the whole path.
        self.matches: Callable[[str], object] = re.compile(f"(?s:{text})\\Z").match


def _translate(item: str, wildcard: str) -> str:
    """Return the regular expression for one item of a pattern."""
    if item == "?":
        return wildcard
    if item == "*":
        return f"{wildcard}*"
    if item.startswith("**"):
        return ".*"
    if len(item) > 1:
        # fnmatch knows the rules of sets; it returns the expression as (?s:EXPRESSION)\Z.
        return fnmatch.translate(item)[len("(?s:") : -len(r")\Z")]
    return re.escape(item)
