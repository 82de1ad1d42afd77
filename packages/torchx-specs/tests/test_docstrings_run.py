"""Run the examples in the docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import torchx_specs

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(torchx_specs.__path__, "torchx_specs.")
)


def test_there_are_examples() -> None:
    examples = sum(
        len(test.examples)
        for name in MODULES
        for test in doctest.DocTestFinder().find(importlib.import_module(name))
    )
    assert examples > 50


@pytest.mark.parametrize("name", ["torchx_specs", *MODULES])
def test_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
