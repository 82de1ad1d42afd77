"""Tests of quoted arguments, most of which real shells read."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx_kit.scripts import shell
from torchx_specs.errors import RequestError

# Generates every argument that a process can get.
anything = st.binary(max_size=40).map(
    lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)
HOSTILE = [
    "",
    " ",
    "-n",
    "it's",
    '"',
    "$HOME `id` $(id) \\",
    "a\nb\r\n\tc",
    "caf\u00e9 \u2028 \U0001f600",
    "\udcff\udc80",
    "!x #y ~z *?[a] {b,c} ;|&<>",
    "%j \\n \\303",
    ":",
    "=x",
]


def arguments_in(interpreter: str, command_line: str) -> list[bytes]:
    script = f'for word in {command_line}; do printf "%s\\0" "$word"; done'
    out = subprocess.run(
        [interpreter, "-c", os.fsencode(script)], stdout=subprocess.PIPE, check=True
    )
    return out.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("interpreter", ["sh", "bash", "dash"])
def test_every_argument_arrives_byte_for_byte(interpreter: str) -> None:
    if not shutil.which(interpreter):
        pytest.skip(f"no {interpreter}")
    seen = arguments_in(interpreter, shell.join(HOSTILE))
    assert seen == [shell.encode(word) for word in HOSTILE]


@settings(max_examples=10)
@given(st.lists(anything, min_size=1, max_size=30))
def test_ascii_form_arrives_byte_for_byte_in_bash(words: list[str]) -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash")
    line = shell.join(words, shell.quote_ascii)
    assert arguments_in("bash", line) == [shell.encode(word) for word in words]


@given(anything)
def test_ascii_form_is_printable_ascii(word: str) -> None:
    quoted = shell.quote_ascii(word)
    assert quoted.isascii()
    assert quoted.isprintable()


@given(st.lists(anything))
def test_shlex_split_is_the_inverse_of_join(words: list[str]) -> None:
    assert shlex.split(shell.join(words)) == words


def test_placeholder_becomes_shell_code_and_the_rest_stays_quoted() -> None:
    word = shell.quote_around("a b <ID>$x<ID>", {"<ID>": '"$VALUE"'})
    out = subprocess.run(
        ["sh", "-c", f"VALUE='1 2'; printf %s {word}"], stdout=subprocess.PIPE, check=True
    )
    assert out.stdout == b"a b 1 2$x1 2"


def test_longest_placeholder_wins() -> None:
    assert shell.quote_around("ab", {"a": "1", "ab": "2"}) == "2"


def test_argument_without_placeholder_is_quoted_as_a_whole() -> None:
    assert shell.quote_around("\n", {"<ID>": "x"}, shell.quote_ascii) == r"$'\012'"


def test_empty_argument_is_kept() -> None:
    assert shell.quote("") == "''"
    assert shell.quote_ascii("") == "''"


@pytest.mark.parametrize("quoting", [shell.quote, shell.quote_ascii])
def test_nul_is_refused(quoting) -> None:
    with pytest.raises(RequestError, match="NUL"):
        quoting("a\0b")
    with pytest.raises(RequestError, match="NUL"):
        quoting("\u00e9\0")


def test_surrogate_that_is_not_a_byte_is_refused() -> None:
    with pytest.raises(RequestError, match="is not a byte"):
        shell.quote_ascii("\ud800")


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "a b", "\u00e9", "a\n"])
def test_name_that_a_shell_cannot_export_is_refused(name: str) -> None:
    assert not shell.is_variable_name(name)
