"""Tests of the ignore rules."""

from __future__ import annotations

import fnmatch
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx_kit.workspace.ignore import ROOT, Glob, IgnoreRules

TREE = [
    "a.py",
    "b.log",
    "build/keep.txt",
    "build/x.o",
    "build/deep/keep.txt",
    "src/a.py",
    "src/x.log",
    "src/build/y.o",
    "Dockerfile.torchx",
]


def kept(rules: str, tree: list[str] = TREE) -> list[str]:
    parsed = IgnoreRules.parse(rules)
    return [path for path in tree if not parsed.ignores(path)]


def excluded(rules: str) -> list[str]:
    stay = kept(rules)
    return [path for path in TREE if path not in stay]


class TestRulesOfUpstream:
    @pytest.mark.parametrize(
        ("rules", "ignored"),
        [
            ("", []),
            ("# only a comment\n\n   \n", []),
            (".", []),
            ("*.log", ["b.log", "src/x.log"]),
            ("*.log # all of them", ["b.log", "src/x.log"]),
            ("  *.log  ", ["b.log", "src/x.log"]),
            ("b.log\r\na.py", ["a.py", "b.log"]),
            ("build", ["build/keep.txt", "build/x.o", "build/deep/keep.txt"]),
            ("x.o", []),
            ("build/*", ["build/keep.txt", "build/x.o", "build/deep/keep.txt"]),
            ("?.py", ["a.py"]),
            ("[ab].*", ["a.py", "b.log"]),
            ("[!a].*", ["b.log"]),
            ("*.log\n!b.log", ["src/x.log"]),
            ("!b.log\n*.log", ["b.log", "src/x.log"]),
            ("Dockerfile.torchx", []),
        ],
    )
    def test_excluded_files(self, rules: str, ignored: list[str]) -> None:
        assert excluded(rules) == ignored

    def test_star_excludes_everything_but_the_dockerfile(self) -> None:
        assert kept("*") == ["Dockerfile.torchx"]

    def test_included_folder_includes_its_files(self) -> None:
        assert kept("*\n!src") == ["src/a.py", "src/x.log", "src/build/y.o", "Dockerfile.torchx"]

    def test_later_rule_applies_in_an_included_folder(self) -> None:
        assert kept("*\n!src\n*.log") == ["src/a.py", "src/build/y.o", "Dockerfile.torchx"]

    def test_pattern_without_the_folder_includes_nothing_in_an_excluded_one(self) -> None:
        assert "build/keep.txt" not in kept("build\n!*.txt")
        assert kept("*\n!*.py") == ["a.py", "Dockerfile.torchx"]


class TestAdditionalRules:
    @pytest.mark.parametrize(
        ("rules", "ignored"),
        [
            ("**/build", ["build/keep.txt", "build/x.o", "build/deep/keep.txt", "src/build/y.o"]),
            ("**/x.log", ["src/x.log"]),
            ("**/a.py", ["a.py", "src/a.py"]),
            ("src/**", ["src/a.py", "src/x.log", "src/build/y.o"]),
            ("build/**/keep.txt", ["build/keep.txt", "build/deep/keep.txt"]),
            ("/a.py", ["a.py"]),
            ("./a.py", ["a.py"]),
            ("/src/a.py", ["src/a.py"]),
            ("build/", ["build/keep.txt", "build/x.o", "build/deep/keep.txt"]),
            ("b.log/", []),
            ("/build/deep/", ["build/deep/keep.txt"]),
            ("**/build/", ["build/keep.txt", "build/x.o", "build/deep/keep.txt", "src/build/y.o"]),
        ],
    )
    def test_excluded_files(self, rules: str, ignored: list[str]) -> None:
        assert excluded(rules) == ignored

    @pytest.mark.parametrize(
        ("rules", "included"),
        [
            ("build\n!build/keep.txt", ["build/keep.txt"]),
            ("build\n!build/*.txt", ["build/keep.txt"]),
            ("build\n!**/keep.txt", ["build/keep.txt", "build/deep/keep.txt"]),
            ("build\n!/build/deep/", ["build/deep/keep.txt"]),
            ("build\n!build/deep/keep.txt", ["build/deep/keep.txt"]),
            ("build\n!build/**", ["build/keep.txt", "build/x.o", "build/deep/keep.txt"]),
            ("build\n!build/deep\nbuild/deep/keep.txt", []),
            ("!build/keep.txt\nbuild", []),
        ],
    )
    def test_files_included_in_an_excluded_folder(self, rules: str, included: list[str]) -> None:
        assert [path for path in kept(rules) if path.startswith("build/")] == included

    def test_excluded_folder_is_walked_only_if_a_rule_may_include_files(self) -> None:
        rules = IgnoreRules.parse("node_modules\n!src/keep\n!*.py")
        verdict = rules.verdict("node_modules", True, ROOT)
        assert verdict.ignored
        assert not rules.may_include_below("node_modules", verdict)

    def test_added_rules_follow_the_first_ones(self) -> None:
        rules = IgnoreRules.parse("*.log") + IgnoreRules.parse("!b.log")
        assert not rules.ignores("b.log")
        assert rules.ignores("src/x.log")

    def test_ignore_rules_without_rules_are_false(self) -> None:
        assert not IgnoreRules.parse("# nothing")
        assert IgnoreRules.parse("a")


def ignored_by_upstream(patterns: list[str], path: str) -> bool:
    """Return True if upstream excludes the path."""
    parts = path.split("/")
    first = 0
    for depth in range(1, len(parts) + 1):
        current = "/".join(parts[:depth])
        ignored, decided = False, first
        for i in range(first, len(patterns)):
            reincludes = patterns[i].startswith("!")
            if fnmatch.fnmatchcase(current, patterns[i].removeprefix("!")):
                ignored, decided = not reincludes, i + 1
        if ignored:
            return True
        first = decided
    return False


NAMES = ["a", "b", "ab", "x.py", "y.log", "src", "[z]"]
SEGMENTS = [*NAMES, "*", "*.py", "*.log", "?", "[ab]", "[!a]", "a*", "[b-a]", "[z", "[[]z]"]
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
patterns = st.builds(
    lambda bang, segments: bang + "/".join(segments),
    st.sampled_from(["", "", "!"]),
    st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3),
)


@settings(max_examples=400)
@given(st.lists(patterns, max_size=5), paths)
def test_paths_that_upstream_excludes_are_excluded(rules: list[str], path: str) -> None:
    ours = IgnoreRules.parse("\n".join(rules)).ignores(path)
    theirs = ignored_by_upstream(rules, path)
    if theirs and not ours:
        # The only difference from upstream: a rule may include a path in an excluded folder.
        assert any(rule.startswith("!") and "/" in rule for rule in rules)
    else:
        assert ours == theirs


@given(st.text(st.sampled_from("ab/*?[]!-.x"), max_size=8), paths)
def test_patterns_match_as_in_fnmatch(pattern: str, path: str) -> None:
    if "**/" in pattern:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Older fnmatch warns of `[[`.
        expected = fnmatch.fnmatchcase(path, pattern)
    assert bool(Glob(pattern).matches(path)) == expected


@pytest.mark.parametrize(
    ("pattern", "wildcard", "path", "matches"),
    [
        ("**/a", ".", "a", True),
        ("**/a", ".", "b/b/a", True),
        ("**/a", ".", "ba", False),
        ("b/**/a", ".", "b/a", True),
        ("b/**", "[^/]", "b/a/a", True),
        ("b/*", "[^/]", "b/a/a", False),
        ("b?a", "[^/]", "b/a", False),
    ],
)
def test_double_stars_match_folders(pattern: str, wildcard: str, path: str, matches: bool) -> None:
    assert bool(Glob(pattern, wildcard).matches(path)) == matches
