"""Tests of regular expressions for log lines, with RE2 and without."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.logs.linear_regex import LinearRegex
from torchx_kit.logs.lines import compile_regex, filter_regex
from torchx_specs.errors import RequestError

_PARTS = ["a", "é", "1", "_", ".", "$", "^", "|", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\Z"]
_PARTS += ["[a1]", "[^]a]", "[]x]", "[\\d-]", "[\\w.]", "[^\\s$]", "(a|b)", "(?:a1)", "\\n", "\\$"]
_PARTS += ["a{,2}", "a{1,}", "a{,}", "a+", "(a+)+", "[[:alpha:]]", "[a\\W]", "\\x41", "(?i:A)"]
_PARTS += ["(?m:^a)", "(?-m:a$)", "(?=a)", "(?<!b)", "(?P<n>a)(?P=n)", "(a)\\1", "\\012"]
_PARTS += ["{,", "a{"]


def _is_linear(regex: str) -> bool:
    return isinstance(compile_regex(regex), LinearRegex)


def test_a_nested_repetition_takes_linear_time() -> None:
    assert _is_linear("(a+)+$")  # without google-re2 this test would not end
    search = compile_regex("(a+)+$").search
    assert not search("a" * 1_000_000 + "b\n")
    assert search("a" * 1_000_000 + "\n")


@pytest.mark.parametrize(
    ("regex", "line", "found"),
    [
        ("error$", "an error\n", True),
        ("error$", "an error", True),
        ("error$", "errors\n", False),
        ("^$", "a\n", False),
        ("(?m)^$", "a\n", True),
        (r"error\Z", "an error\n", False),
        (r"^\w+ \d+\s$", "größe ٣\n", True),
        (r"[\d]", "٣", True),
        (r"\s", "a\u2003b", True),
        (r"\S", "\u3000\x1f\x85\n", False),
        ("[]a]", "]", True),
        ("x{,2}y", "xy", True),
        ("a", "\udcff a", True),
    ],
)
def test_re2_selects_the_lines_that_python_selects(regex: str, line: str, found: bool) -> None:
    assert _is_linear(regex)
    assert bool(compile_regex(regex).search(line)) is found
    assert bool(re.search(regex, line)) is found


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@given(
    st.lists(st.sampled_from(_PARTS), min_size=1, max_size=5).map("".join),
    st.text(st.sampled_from("abAé1٣_ .$x{,\u2028\x1c]"), max_size=8),
    st.booleans(),
    st.sampled_from(["", "(?m)", "(?i)", "(?s)", "(?a)"]),
)
def test_both_libraries_agree(parts: str, text: str, ends: bool, flags: str) -> None:
    line = text + "\n" * ends
    try:
        expected = re.search(flags + parts, line)
    except re.error:
        with pytest.raises(RequestError):
            compile_regex(flags + parts)
    else:
        assert bool(compile_regex(flags + parts).search(line)) is bool(expected)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize(
    "regex", ["a(?=b)", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", "[[:alpha:]]", r"[\W]", "a{1001}"]
)
def test_python_matches_what_re2_cannot(regex: str) -> None:
    assert isinstance(compile_regex(regex), re.Pattern)


def test_without_re2_python_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert isinstance(compile_regex("a$"), re.Pattern)
    assert list(filter_regex("b$", ["a b\n", "b a\n"])) == ["a b\n"]


def test_ctrl_c_ends_a_match_by_python() -> None:
    program = (
        "from torchx_kit.logs.lines import compile_regex\n"
        "search = compile_regex(r'(?=a)(a+)+$').search\n"
        "print('ready', flush=True)\n"
        "search('a' * 1_000 + 'b')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=60)
        finally:
            child.kill()
    assert err.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize("regex", ["(", "a**", r"\p{L}", r"\Qa", "(?U)a", "[a-"])
def test_syntax_of_re2_alone_is_refused(regex: str) -> None:
    with pytest.raises(RequestError, match="is not a regular expression"):
        compile_regex(regex)
