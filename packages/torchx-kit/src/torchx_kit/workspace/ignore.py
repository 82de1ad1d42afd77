"""The rules in ``.torchxignore``: which files of a workspace are excluded.

Each line is a rule; a ``#`` begins a comment. A rule is a shell pattern for the path relative to
the folder of the ignore file. ``*`` matches any characters, including ``/``: ``*.pyc`` matches at
any depth, ``build`` only at the top.

- ``**/`` matches any number of folders, ``/**`` everything in a folder.
- ``/`` at the start has no effect: every pattern starts at the top. ``/`` at the end restricts the
  pattern to folders.
- ``!`` at the start includes paths that an earlier rule excludes.
- If several rules match a path or a folder above it, the last of these rules decides.
- In an excluded folder, a ``!`` rule must name the folder: after ``build``, the rules
  ``!build/keep.txt`` and ``!**/keep.txt`` include that file, ``!*.txt`` does not.

The names in :mod:`torchx_specs.workspace.excluded_names` are excluded at any depth, unless a ``!``
rule includes them. ``Dockerfile.torchx`` is never excluded.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchx_specs.workspace.excluded_names import is_excluded

TORCHX_IGNORE = ".torchxignore"
TORCHX_DOCKERFILE = "Dockerfile.torchx"

_NEVER_IGNORED = frozenset({".", TORCHX_DOCKERFILE})

_WITHIN_FOLDER = "[^/]"

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


class Rule:
    """One line of an ignore file."""

    __slots__ = ("_exact", "_folders", "folders_only", "matches", "reincludes")

    def __init__(self, pattern: str, reincludes: bool) -> None:
        self.reincludes = reincludes
        self.folders_only = len(pattern) > 1 and pattern.endswith("/")
        while pattern.startswith("./"):
            pattern = pattern[2:]
        pattern = pattern.strip("/") or pattern
        #: Called with a path; the result is true if the pattern matches.
        self.matches = Glob(pattern).matches
        folders = pattern.split("/")[:-1] if reincludes else []
        self._exact = Glob(pattern, _WITHIN_FOLDER) if folders else None
        #: For each folder above the last part: the expression for its path, or None if ``**``
        #: makes the depth unknown.
        self._folders = [
            None if "**" in "/".join(upto) else Glob("/".join(upto), _WITHIN_FOLDER)
            for upto in (folders[: n + 1] for n in range(len(folders)))
        ]

    def names_exactly(self, path: str) -> bool:
        """Return True if the pattern matches ``path`` without a ``*`` that matches ``/``."""
        return self._exact is not None and bool(self._exact.matches(path))

    def may_match_below(self, folder: str) -> bool:
        """Return True if the rule may include a path below ``folder``."""
        depth = folder.count("/")
        for i, named in enumerate(self._folders):
            if named is None or (i == depth and named.matches(folder)):
                return True
        return False


class Verdict(NamedTuple):
    """The result of the rules for one path.

    Paths in a folder are matched only against the rules after the rule that decided for the folder.
    """

    ignored: bool
    #: The index of the rule that decided; -1 if no rule matched.
    rule: int


#: The verdict for the root of a workspace.
ROOT = Verdict(False, -1)


class IgnoreRules:
    r"""The rules of one workspace.

    >>> rules = IgnoreRules.parse("*.log  # no logs\nbuild\n!build/keep.txt")
    >>> [p for p in ("a.py", "b/c.log", "build/x", "build/keep.txt") if not rules.ignores(p)]
    ['a.py', 'build/keep.txt']
    """

    def __init__(self, rules: Iterable[Rule] = (), excluded: frozenset[str] = frozenset()) -> None:
        self._rules = list(rules)
        #: Paths that are excluded unless a rule includes them.
        self._excluded = excluded

    @classmethod
    def parse(cls, text: str) -> IgnoreRules:
        """Parse the text of an ignore file."""
        rules = []
        for raw in text.splitlines():
            line = raw.partition("#")[0].strip()
            reincludes = line.startswith("!")
            pattern = line[1:] if reincludes else line
            if pattern and pattern != ".":
                rules.append(Rule(pattern, reincludes))
        return cls(rules)

    def __bool__(self) -> bool:
        return bool(self._rules or self._excluded)

    def __add__(self, other: IgnoreRules) -> IgnoreRules:
        """Return these rules, followed by the rules of ``other``."""
        return IgnoreRules([*self._rules, *other._rules], self._excluded | other._excluded)

    def verdict(
        self, path: str, is_folder: bool, above: Verdict = ROOT, defaults: bool = True
    ) -> Verdict:
        """Return the verdict for one path; ``above`` itself if no rule matches the path.

        Args:
            path: The path relative to the root, with ``/``.
            is_folder: Whether the path is a folder.
            above: The verdict for the folder that contains the path.
            defaults: Whether names that :func:`is_excluded` accepts are excluded.
        """
        if path in _NEVER_IGNORED:
            return Verdict(False, above.rule)
        rules = self._rules
        for i in range(len(rules) - 1, above.rule, -1):
            rule = rules[i]
            if rule.folders_only and not is_folder:
                continue
            if above.ignored and rule.reincludes:
                if rule.names_exactly(path):
                    return Verdict(False, i)
            elif rule.matches(path):
                return Verdict(not rule.reincludes, i)
        by_name = defaults and above is ROOT and is_excluded(path.rpartition("/")[2])
        if by_name or path in self._excluded:
            return Verdict(True, -1)
        return above

    def may_include_below(self, folder: str, verdict: Verdict) -> bool:
        """Return True if the rules may include a path below ``folder``, which has ``verdict``."""
        return not verdict.ignored or any(
            rule.reincludes and rule.may_match_below(folder)
            for rule in self._rules[verdict.rule + 1 :]
        )

    def ignores(self, path: str, defaults: bool = True) -> bool:
        """Return True if the rules exclude a file.

        Args:
            path: The path relative to the root, with ``/``.
            defaults: Whether names that :func:`is_excluded` accepts are excluded.
        """
        verdict = ROOT
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            verdict = self.verdict(folder, True, verdict, defaults)
            if not self.may_include_below(folder, verdict):
                return True
        return self.verdict(path, False, verdict, defaults).ignored
