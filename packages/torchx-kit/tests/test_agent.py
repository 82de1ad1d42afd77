"""Tests of the helper program's frames, and that it runs on old versions of Python."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.hosts import agent


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        b"",
        [1, "run", b"\0\xff", {"bytes": "text", "b": None}, [b"two", {"bytes": [b"three"]}]],
        {"\udcff": "caf\xe9 \udc80"},
    ],
)
def test_values_survive_a_frame(value: Any) -> None:
    assert agent.unpack(io.BytesIO(agent.pack([value]))) == [value]


def test_a_file_ends_between_or_in_a_frame() -> None:
    frame = agent.pack(["text", b"data"])
    for size in range(len(frame)):
        assert agent.unpack(io.BytesIO(frame[:size])) is None


@pytest.mark.parametrize("data", [b"Welcome to login1, user", b"\0" * 7 + b"\1" + b"\0" * 8 + b"x"])
def test_something_else_is_not_a_frame(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - also json's own
        agent.unpack(io.BytesIO(data))


def test_the_program_has_only_syntax_of_python_3_6() -> None:
    ast.parse(Path(agent.__file__).read_text(), feature_version=(3, 6))


def test_the_program_imports_only_the_standard_library() -> None:
    tree = ast.parse(Path(agent.__file__).read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules <= sys.stdlib_module_names


def test_the_program_ends_with_its_input() -> None:
    done = subprocess.run(
        [sys.executable, agent.__file__], input=b"marker\n", capture_output=True, check=True
    )
    marker, _, frame = done.stdout.partition(b"\n")
    assert marker == b"marker"
    assert set(agent.unpack(io.BytesIO(frame))) == {"user", "home", "directory", "variables"}
