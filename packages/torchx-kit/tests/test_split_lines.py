"""Splitting text into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.logs.lines import split_lines, split_lines_iterator


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a\n"]),
        ("a\nb", ["a\n", "b"]),
        ("\n\n", ["\n", "\n"]),
        ("a\r\nb\rc\x0bd\u2028e\n", ["a\r\n", "b\rc\x0bd\u2028e\n"]),
    ],
)
def test_split_lines(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@given(st.lists(st.text(st.sampled_from("ab\n\r\u2028"), max_size=5), max_size=12))
def test_chunks_are_never_joined(chunks: list[str]) -> None:
    expected = [line for chunk in chunks for line in split_lines(chunk)]
    assert list(split_lines_iterator(chunks)) == expected
