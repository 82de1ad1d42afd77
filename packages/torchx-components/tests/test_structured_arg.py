"""Tests of -j and --name; the expected values are those of torchx-nightly 2026.10.26."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from torchx_components.structured_arg import StructuredJArgument, StructuredNameArgument


@pytest.mark.parametrize(
    ("arguments", "experiment", "run"),
    [
        ({"name": "a/b", "m": "x"}, "a", "b"),
        ({"name": "a/", "m": "x.y"}, "a", "y"),
        ({"name": "/b", "script": "q/t.py"}, "default-experiment", "b"),
        ({"name": "b", "m": "x"}, "default-experiment", "b"),
        ({"name": "a/b/c", "m": "x"}, "a", "b/c"),
        ({"name": "/", "m": "x.y.z"}, "default-experiment", "z"),
        ({"name": "", "m": "x"}, "default-experiment", "x"),
        ({"name": "/", "script": "q.tar.py"}, "default-experiment", "q.tar"),
        ({"name": "/", "script": "q"}, "default-experiment", "q"),
        ({"name": "/", "m": "", "script": "b"}, "default-experiment", "b"),
        ({"name": "/", "m": "x", "script": ""}, "default-experiment", "x"),
        ({"name": "/", "m": "x", "default_experiment_name": "D"}, "D", "x"),
        ({"name": "//", "m": "x"}, "default-experiment", "/"),
    ],
)
def test_name_is_parsed(arguments: dict[str, Any], experiment: str, run: str) -> None:
    parsed = StructuredNameArgument.parse_from(**arguments)
    assert parsed == StructuredNameArgument(experiment_name=experiment, run_name=run)
    assert str(parsed) == f"{experiment}/{run}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "/"}, "No main module or script specified"),
        ({"name": "a/b"}, "No main module or script specified"),
        ({"name": "/", "m": "a", "script": "b"}, "Both main module and script set"),
    ],
)
def test_name_needs_one_main_program(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StructuredNameArgument.parse_from(**arguments)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("h", "j", "nnodes", "nproc", "text"),
    [
        ("gpu.small", "2", 2, 1, "2x1"),
        ("gpu.xlarge", "2", 2, 8, "2x8"),
        ("gpu.large", "2x4", 2, 4, "2x4"),
        ("cpu.small", "2x3", 2, 3, "2x3"),
    ],
)
def test_j_is_parsed(h: str, j: str, nnodes: int, nproc: int, text: str) -> None:
    parsed = StructuredJArgument.parse_from(h, j)
    assert parsed == StructuredJArgument(nnodes=nnodes, nproc_per_node=nproc)
    assert str(parsed) == text


@pytest.mark.parametrize(("j", "text"), [("1:3", "1:3x2"), ("1:3x2", "1:3x2"), ("2:2", "2:2x2")])
def test_j_may_be_elastic(j: str, text: str) -> None:
    """Check that ``-j`` accepts a range of nodes (MIN:MAX); torchx-nightly accepts none."""
    assert str(StructuredJArgument.parse_from("gpu.medium", j)) == text


@pytest.mark.parametrize(
    ("h", "j", "message"),
    [
        ("cpu.small", "2", r"`cpu\.small` is not a GPU instance.*\(e\.g\. `-j 2x8`\)"),
        ("gpu.small", "", "Invalid format for -j"),
        ("gpu.small", "x", "Invalid format for -j.*Given: x"),
        ("gpu.small", "2x", "Invalid format for -j"),
        ("gpu.small", "2x1\n", "Invalid format for -j"),
        ("gpu.small", "２", "Invalid format for -j"),
        ("gpu.small", "0", "at least 1"),
        ("gpu.small", "0x0", "at least 1"),
        ("gpu.small", "3:2", "minimum of 3 nodes exceeds the maximum of 2"),
    ],
)
def test_invalid_j_is_an_error(h: str, j: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StructuredJArgument.parse_from(h, j)


def test_j_with_an_unknown_resource_is_an_error() -> None:
    with pytest.raises(KeyError, match="nope"):
        StructuredJArgument.parse_from("nope", "2x1")


@pytest.mark.parametrize(("j", "advice"), [("2x8", "`-j 2`"), ("1:2x1", "`-j 1:2`")])
def test_other_number_of_processes_than_gpus_is_a_warning(j: str, advice: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        StructuredJArgument.parse_from("gpu.large", j)
    assert [warning.category for warning in caught] == [UserWarning]
    assert "does not equal the number of GPUs on a gpu.large: 4" in str(caught[0].message)
    assert advice in str(caught[0].message)
