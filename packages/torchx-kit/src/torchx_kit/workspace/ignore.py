"""Which files of a workspace stay behind: the rules in ``.torchxignore``.

One rule a line; what follows a ``#`` is a comment. A rule is a shell pattern for the path relative
to the file's folder, in which ``*`` stands for any characters, ``/`` included (``*.pyc`` matches at
any depth, ``build`` only at the top).

- ``**/`` stands for any folders or none, ``/**`` for everything below
- ``/`` at the start changes nothing (every pattern starts at the top), ``/`` at the end says that
  only folders are meant
- ``!`` in front takes back what a rule above it left out
- of the rules that match a path or a folder above it, the last one decides
- below a folder that is left out, a ``!`` rule must spell out the folder: after ``build``,
  ``!build/keep.txt`` and ``!**/keep.txt`` bring that file back, ``!*.txt`` does not

``Dockerfile.torchx`` is never left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TORCHX_IGNORE = ".torchxignore"
TORCHX_DOCKERFILE = "Dockerfile.torchx"

_NEVER_IGNORED = frozenset({".", TORCHX_DOCKERFILE})

_WITHIN_FOLDER = "[^/]"


class Rule:
    """One line of an ignore file."""

    __slots__ = ("_folders", "_spelt", "folders_only", "matches", "reincludes")

    def __init__(self, pattern: str, reincludes: bool) -> None:
        self.reincludes = reincludes
        self.folders_only = len(pattern) > 1 and pattern.endswith("/")
        pattern = _without_dot_slash(pattern).strip("/") or pattern
        #: called with a path, returns something true if it matches
        self.matches = re.compile(_translate(pattern)).match
        folders = pattern.split("/")[:-1] if reincludes else []
        self._spelt = re.compile(_translate(pattern, _WITHIN_FOLDER)) if folders else None
        #: the folders that the pattern goes through, by depth; None for any
        self._folders = [
            None
            if "**" in "/".join(upto)
            else re.compile(_translate("/".join(upto), _WITHIN_FOLDER))
            for upto in (folders[: n + 1] for n in range(len(folders)))
        ]

    def spells_out(self, path: str) -> bool:
        """Returns True if the rule names ``path`` folder by folder."""
        return self._spelt is not None and self._spelt.match(path) is not None

    def reaches_below(self, folder: str) -> bool:
        """Returns True if the rule may name something below ``folder``."""
        depth = folder.count("/")
        for i, named in enumerate(self._folders):
            if named is None or (i == depth and named.match(folder)):
                return True
        return False


class Verdict:
    """What the rules say of a folder, from which they go on below it."""

    __slots__ = ("ignored", "rule")

    def __init__(self, ignored: bool, rule: int) -> None:
        self.ignored = ignored
        #: number of the rule that decided, -1 for none
        self.rule = rule


#: The verdict on the root of a workspace.
ROOT = Verdict(False, -1)


class IgnoreRules:
    """The rules of one workspace.

    >>> rules = IgnoreRules.parse("*.log  # no logs\\nbuild\\n!build/keep.txt")
    >>> [p for p in ("a.py", "b/c.log", "build/x", "build/keep.txt") if not rules.ignores(p)]
    ['a.py', 'build/keep.txt']
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = list(rules)
        self._any_reincludes = any(rule.reincludes for rule in self._rules)

    @classmethod
    def parse(cls, text: str) -> IgnoreRules:
        """Reads the text of an ignore file."""
        rules = []
        for raw in text.splitlines():
            line = raw.partition("#")[0].strip()
            reincludes = line.startswith("!")
            pattern = line[1:] if reincludes else line
            if pattern and pattern != ".":
                rules.append(Rule(pattern, reincludes))
        return cls(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def __add__(self, other: IgnoreRules) -> IgnoreRules:
        """Returns these rules followed by those of ``other``."""
        return IgnoreRules([*self._rules, *other._rules])

    def verdict(self, path: str, is_folder: bool, above: Verdict = ROOT) -> Verdict:
        """Judges one path.

        Args:
            path: relative to the root, with ``/``
            is_folder: whether it is a folder
            above: the verdict on the folder it is in
        """
        if path in _NEVER_IGNORED:
            return Verdict(False, above.rule)
        rules = self._rules
        for i in range(len(rules) - 1, above.rule, -1):
            rule = rules[i]
            if rule.folders_only and not is_folder:
                continue
            if above.ignored and rule.reincludes:
                if rule.spells_out(path):
                    return Verdict(False, i)
            elif rule.matches(path):
                return Verdict(not rule.reincludes, i)
        return above

    def enters(self, folder: str, verdict: Verdict) -> bool:
        """Returns True if something below ``folder``, judged by ``verdict``, may be taken along."""
        if not verdict.ignored:
            return True
        if not self._any_reincludes:
            return False
        return any(
            rule.reincludes and rule.reaches_below(folder)
            for rule in self._rules[verdict.rule + 1 :]
        )

    def ignores(self, path: str) -> bool:
        """Returns True if the file ``path`` (relative, with ``/``) stays behind."""
        verdict = ROOT
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            verdict = self.verdict(folder, True, verdict)
            if not self.enters(folder, verdict):
                return True
        return self.verdict(path, False, verdict).ignored


def _without_dot_slash(pattern: str) -> str:
    while pattern.startswith("./"):
        pattern = pattern[2:]
    return pattern


def _translate(pattern: str, wildcard: str = ".") -> str:
    """Returns the regular expression of a shell pattern.

    Args:
        pattern: as :mod:`fnmatch` has it, and ``**/`` for any folders or none
        wildcard: what ``?`` and each character of ``*`` may be
    """
    parts = re.split(r"(?:(?<=/)|\A)(?:\*\*/)+", pattern)
    return "(?s:" + "(?:.*/)?".join(_translate_glob(part, wildcard) for part in parts) + r")\Z"


def _translate_glob(glob: str, wildcard: str) -> str:
    out = ""
    i = 0
    while i < len(glob):
        c = glob[i]
        if c == "*":
            stars = len(glob) - i - len(glob[i:].lstrip("*"))
            out += wildcard + "*" if stars == 1 else ".*"
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
    """Returns the expression for what stands between brackets; an empty range matches nothing."""
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
