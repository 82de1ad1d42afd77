"""Run the examples in the docstrings of every package."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from workspace import ROOT


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted(
    module_name(path, source)
    for source in ROOT.glob("packages/*/src")
    for path in source.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


def test_there_are_examples_in_many_packages() -> None:
    assert len({name.partition(".")[0] for name in MODULES}) > 10


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
