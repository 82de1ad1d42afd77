"""Shell patterns for paths, matched in a time that a hostile pattern cannot make exponential."""

from __future__ import annotations

import re
from collections.abc import Callable

#: The largest number of steps for which backtracking by :mod:`re` is accepted, per path.
_MAX_STEPS = 100_000
_STAR, _FOLDERS = "star", "folders"


class Glob:
    """A pattern of :mod:`fnmatch`, in which ``**/`` matches any number of folders.

    Args:
        pattern: The pattern.
        wildcard: The regular expression for ``?`` and for each character that ``*`` matches. ``**``
            matches any characters.
    """

    __slots__ = ("_parts", "_regex", "_stars", "matches")

    def __init__(self, pattern: str, wildcard: str = ".") -> None:
        #: Kind and regular expression of each part; the kind is empty for a single character.
        self._parts: list[tuple[str, str]] = []
        for i, part in enumerate(re.split(r"(?:(?<=/)|\A)(?:\*\*/)+", pattern)):
            if i:
                self._parts.append((_FOLDERS, "(?:.*/)?"))
            self._parts += _parts(part, wildcard)
        self._stars = sum(1 for kind, _ in self._parts if kind)
        text = "".join(f"{regex}*" if kind == _STAR else regex for kind, regex in self._parts)
        self._regex = re.compile(f"(?s:{text})\\Z")
        #: Called with a path; the result is true if the pattern matches the whole path.
        self.matches: Callable[[str], object] = self._regex.match
        if self._stars > 1:
            self.matches = self._matches_in_bounded_time

    def _matches_in_bounded_time(self, path: str) -> bool:
        # Backtracking takes up to this many steps. re is faster for all but unusual patterns.
        if len(path) ** self._stars <= _MAX_STEPS:
            return self._regex.match(path) is not None
        return self._matches_linearly(path)

    def _matches_linearly(self, path: str) -> bool:
        """Match by keeping all possible positions in the pattern, without backtracking."""
        parts = [(kind, re.compile(f"(?s:{regex})")) for kind, regex in self._parts]
        end = len(parts)
        # before: the parts that may match next. inside: the parts ``**/`` that have matched some
        # characters, but not yet their slash.
        before, inside = _skip_stars({0}, parts), set[int]()
        for character in path:
            after: set[int] = set()
            inside |= {i for i in before if i < end and parts[i][0] == _FOLDERS}
            if character == "/":
                after |= {i + 1 for i in inside}
            for i in before:
                if i == end or parts[i][0] == _FOLDERS or not parts[i][1].match(character):
                    continue
                after.add(i if parts[i][0] == _STAR else i + 1)
            before = _skip_stars(after, parts)
            if not before and not inside:
                return False
        return end in before


def _skip_stars(positions: set[int], parts: list[tuple[str, re.Pattern[str]]]) -> set[int]:
    """Return the positions in a pattern that can be reached without reading a character.

    A star or ``**/`` may match nothing, so the position after it can be reached, too.

    Args:
        positions: The positions that were reached by reading characters.
        parts: The parts of the pattern.
    """
    found = set(positions)
    for position in positions:
        while position < len(parts) and parts[position][0]:
            position += 1
            found.add(position)
    return found


def _parts(glob: str, wildcard: str) -> list[tuple[str, str]]:
    out = []
    i = 0
    while i < len(glob):
        c = glob[i]
        if c == "*":
            stars = len(glob) - i - len(glob[i:].lstrip("*"))
            out.append((_STAR, wildcard if stars == 1 else "."))
            i += stars
            continue
        end = glob.find("]", i + (3 if glob[i + 1 : i + 2] == "!" else 2)) if c == "[" else -1
        if end > 0:
            out.append(("", _translate_set(glob[i + 1 : end])))
            i = end
        else:
            out.append(("", wildcard if c == "?" else re.escape(c)))
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
