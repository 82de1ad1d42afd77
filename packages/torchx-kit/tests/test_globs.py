"""Tests of the shell patterns for paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.text.globs import Glob

PARTS = ["a", "b", "/", "*", "**/", "**", "?", "[ab]", "[!a]", "/**"]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 20 + "b", "a" * 200),
        ("**a" * 20 + "b", "a" * 200),
        ("?*" * 20 + "b", "a" * 200),
        ("*/" * 20 + "x", "a/" * 100 + "y"),
        ("**/a/" * 20 + "x", "a/" * 100 + "y"),
    ],
)
@pytest.mark.parametrize("wildcard", [".", "[^/]"])
def test_pattern_with_many_stars_is_matched_in_linear_time(
    pattern: str, path: str, wildcard: str
) -> None:
    assert not Glob(pattern, wildcard).matches(path)  # Backtracking would take years.


@given(
    st.lists(st.sampled_from(PARTS), max_size=9).map("".join),
    st.text("ab/", max_size=10),
    st.sampled_from([".", "[^/]"]),
)
def test_both_ways_to_match_give_the_same_result(pattern: str, path: str, wildcard: str) -> None:
    glob = Glob(pattern, wildcard)
    assert glob._matches_linearly(path) == (glob._regex.match(path) is not None)
