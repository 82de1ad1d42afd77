r"""Regular expressions in time linear in the length of a line, by RE2 (the extra ``re2``).

:func:`linear_regex` rewrites a regular expression of Python for RE2, so that it selects the same
lines: ``$`` also matches before the final newline, and ``\d``, ``\s`` and ``\w`` include characters
outside ASCII. Two differences remain: ``\b`` and ``\B`` know only words of ASCII characters, and
the two libraries may know different versions of Unicode.
"""

from __future__ import annotations

import re
from typing import Any

# RE2 gives some escapes, classes and groups another meaning than Python. `_rewritten` translates
# them, or returns None. RE2 itself refuses lookaround and named references to groups.
_TOKEN = re.compile(r"\\.|\{,(?=\d*\})|\(\?[a-zA-Z]*(?:-[a-zA-Z]*)?:|\[\^?\]?|.", re.DOTALL)
_OUTSIDE_CLASS = {
    "$": "(?m:$)",
    r"\Z": r"\z",
    "{,": "{0,",
    r"\D": r"\P{Nd}",
    r"\S": r"[^\t-\r\x1c-\x20\x85\p{Z}]",
    r"\W": r"[^\p{L}\p{N}_]",
}
_ANYWHERE = {r"\d": r"\p{Nd}", r"\s": r"\t-\r\x1c-\x20\x85\p{Z}", r"\w": r"\p{L}\p{N}_"}


class LinearRegex:
    """A regular expression that RE2 matches.

    Args:
        pattern: A compiled regular expression of the module ``re2``.
    """

    def __init__(self, pattern: Any) -> None:
        self._search = pattern.search

    def search(self, line: str, /) -> object:
        """Return a true value if the expression is found in the line."""
        # Searching bytes is faster: for a str, re2 would also convert the offsets of the match.
        return self._search(line.encode("utf-8", "replace"))


def linear_regex(compiled: re.Pattern[str]) -> LinearRegex | None:
    """Return a regular expression that RE2 matches.

    Args:
        compiled: The expression, as Python has compiled it.

    Returns:
        The expression; None if ``google-re2`` is not installed, or RE2 cannot match the expression.
    """
    try:
        import re2
    except ImportError:
        return None
    text = _rewritten(compiled)
    if text is None:
        return None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return LinearRegex(re2.compile(text.encode("utf-8"), options))
    except (re2.error, UnicodeEncodeError):
        return None


def _rewritten(compiled: re.Pattern[str]) -> str | None:
    """Return the expression in RE2's syntax; None if RE2 gives a part of it another meaning."""
    in_class = False
    out = []
    for part in _TOKEN.findall(compiled.pattern):
        if re.fullmatch(r"\\[1-9]", part):
            return None
        if in_class:
            # Python has neither POSIX classes, such as [[:alpha:]], nor nested ones.
            if part.startswith("[") or part in (r"\D", r"\S", r"\W"):
                return None
            in_class = part != "]"
            out.append(_ANYWHERE.get(part, part))
        elif part.startswith("["):
            in_class = True
            out.append(part.replace("]", r"\]"))
        elif part.startswith("(?") and "m" in part:
            return None
        elif part == "$" and compiled.flags & re.MULTILINE:
            out.append(part)
        elif part in _ANYWHERE:
            out.append(f"[{_ANYWHERE[part]}]")
        else:
            out.append(_OUTSIDE_CLASS.get(part, part))
    return "".join(out)
