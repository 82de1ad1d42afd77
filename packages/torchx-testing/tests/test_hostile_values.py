"""Tests of the hostile values, and of the programs that print them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchx_specs.model.templates import is_template
from torchx_testing.hostile import (
    HOSTILE_VALUES,
    NOT_UTF8,
    dump_args,
    parse_dump,
    python_dump_args,
)


def test_values_are_many_unique_and_possible() -> None:
    found = [value.text for value in HOSTILE_VALUES]
    assert len(found) >= 235
    assert len(set(found)) == len(found)
    assert len({value.name for value in HOSTILE_VALUES}) == len(found)
    for text in found:
        assert "\0" not in text
        assert not is_template(text)
        text.encode("utf-8")


def test_values_of_every_kind_are_there() -> None:
    found = {value.text for value in HOSTILE_VALUES}
    must = ["", " ", "'", '"', "$", "\n", "\r", "\t", "--", "-n", ":", "$(exit 7)", "%j", "*"]
    must += ["\\", "a\\", "$$", "$(HOSTILE_000)", "#SBATCH --exit", "e\u0301", "a\u202eb"]
    assert set(must) <= found
    assert any(len(text) >= 100_000 for text in found)
    assert any(ord(c) > 0xFFFF for text in found for c in text)
    assert {chr(c) for c in range(1, 32)} <= {c for text in found for c in text}


@pytest.mark.parametrize("program", ["sh", "python"])
def test_the_dump_gives_back_what_it_was_given(program: str) -> None:
    values = [value.text for value in (*HOSTILE_VALUES, *NOT_UTF8)]
    env = {f"V{i}": text for i, text in enumerate(values)}
    command = (
        ["sh", *dump_args(values)]
        if program == "sh"
        else [sys.executable, *python_dump_args(values)]
    )
    done = subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    dump = parse_dump(done.stdout.splitlines())
    assert dump.args == values
    assert {name: dump.env[name] for name in env} == env


@pytest.mark.parametrize("lines", [[], ["ARGS-BEGIN"], ["ARGS-BEGIN", "ARGS-END", "ENV-BEGIN"]])
def test_output_that_is_not_complete(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="not in list"):
        parse_dump(lines)
