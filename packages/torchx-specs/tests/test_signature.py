"""Tests of signatures whose annotations are objects or strings."""

import enum
import typing as t
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from torchx_specs.components.materialize import component_args_from_str
from torchx_specs.model.app import AppDef


class Color(enum.Enum):
    RED = "r"


def objects(i: int, o: Optional[int], l: t.List[int], c: Color, p: Path) -> AppDef:  # noqa: E741
    raise AssertionError


def strings(
    i: "int",
    o: "Optional[int]",
    l: "t.List[int]",  # noqa: E741
    c: "Color",
    p: "Path",
) -> "AppDef":
    raise AssertionError


def nested_strings(
    i: t.Annotated["int", "-q"],
    o: Optional["int"],
    l: t.List["int"],  # noqa: E741
    c: "t.Union[Color, str]",
    p: t.Optional["Path"],
) -> "AppDef":
    raise AssertionError


@pytest.mark.parametrize("component", [objects, strings, nested_strings])
def test_annotations_may_be_objects_or_strings(component: Callable[..., Any]) -> None:
    args = component_args_from_str(component, ["--i=1", "--o=2", "--l=3,4", "--c=RED", "--p=a/b"])
    assert args.positional_args == {
        "i": 1,
        "o": 2,
        "l": [3, 4],
        "c": Color.RED,
        "p": Path("a/b"),
    }
