"""Tests of splitting logs into lines, and of selecting lines."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.logs.lines import filter_regex, split_lines, split_lines_iterator


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


def test_filter_regex() -> None:
    lines = ["error: a\n", "ok\n", "an error\n"]
    assert list(filter_regex("error", lines)) == ["error: a\n", "an error\n"]
    assert list(filter_regex("^error", lines)) == ["error: a\n"]


def test_filter_regex_is_lazy() -> None:
    def endless() -> Iterable[str]:
        while True:
            yield "x"

    assert next(iter(filter_regex("x", endless()))) == "x"
