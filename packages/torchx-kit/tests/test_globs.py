"""Tests of the shell patterns for paths."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.workspace.ignore import Glob

PARTS = ["a", "b", "/", "*", "?", "[ab]", "[!a]"]


@given(st.lists(st.sampled_from(PARTS), max_size=9).map("".join), st.text("ab/", max_size=10))
def test_a_pattern_without_double_stars_is_that_of_fnmatch(pattern: str, path: str) -> None:
    if "**" not in pattern:
        assert bool(Glob(pattern).matches(path)) == fnmatch.fnmatchcase(path, pattern)


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
