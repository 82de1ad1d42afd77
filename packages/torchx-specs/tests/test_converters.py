"""Tests of the converters from text and typed values to the types of parameters."""

from __future__ import annotations

import collections.abc
import enum
import os
import sys
import typing
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Dict, List, Literal, NewType, Optional, Tuple, Union

import pytest

from torchx_specs.components.converters import UnsupportedTypeError, converter_for


class Color(enum.Enum):
    RED = "r"
    GREEN = 2


class Switch(enum.Enum):
    ON = "on"
    ENABLED = "on"  # noqa: PIE796 - an alias


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"


Count = NewType("Count", int)


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "a b", "a b"),
        (str, "", ""),
        (str, " x ", " x "),
        (str, "None", "None"),
        (str, "01", "01"),
        (int, "5", 5),
        (int, "-5", -5),
        (float, "1e-3", 0.001),
        (float, "5", 5.0),
        *[(bool, word, True) for word in ("true", "True", "TRUE", "1", "yes", "Yes", "on", "ON")],
        *[(bool, word, False) for word in ("false", "False", "FALSE", "0", "no", "No", "off")],
        (Optional[int], "5", 5),
        (Optional[int], "", None),
        (Optional[int], "None", None),
        (Optional[float], "0.5", 0.5),
        (Optional[bool], "true", True),
        (Optional[str], "", ""),
        (Optional[str], "None", "None"),
        (int | None, "5", 5),
        (None | int, "5", 5),
        (Union[None, int], "5", 5),
        (Union[int, str], "5", 5),
        (Union[int, str], "x", "x"),
        (Union[str, int], "5", 5),
        (int | float | str, "5", 5),
        (int | float | str, "5.5", 5.5),
        (int | float | str, "x", "x"),
        (Union[bool, int], "1", 1),
        (Union[bool, int], "true", True),
        (Union[bool, str], "auto", "auto"),
        (Union[str, Literal["auto"], int], "auto", "auto"),
        (Union[int, str, None], "", ""),
        (Union[int, None, float], "", None),
        (Union[Path, int], "5", 5),
        (Union[Dict[str, str], str], "a=1", {"a": "1"}),
        (Union[Dict[str, str], str], "a", "a"),
        (Literal["a", "b"], "b", "b"),
        (Literal[1, 2], "2", 2),
        (Literal["1", 1], "1", "1"),
        (Literal[True, "auto"], "true", True),
        (Literal["a", None], "a", "a"),
        (Literal["a", None], "", None),
        (Literal["a", None], "None", None),
        (Literal[Color.RED, "x"], "RED", Color.RED),
        (Optional[Literal["a"]], "a", "a"),
        (Color, "RED", Color.RED),
        (Switch, "ENABLED", Switch.ON),
        (Color, "r", Color.RED),
        (Color, "2", Color.GREEN),
        (Level, "HIGH", Level.HIGH),
        (Level, "1", Level.LOW),
        (Mode, "FAST", Mode.FAST),
        (Mode, "fast", Mode.FAST),
        (Optional[Color], "", None),
        (Path, "a/b", Path("a/b")),
        (PurePosixPath, "a/b", PurePosixPath("a/b")),
        (Optional[Path], "", None),
        (List[str], "a,b", ["a", "b"]),
        (list[str], "", []),
        (list[int], "1, 2", [1, 2]),
        (list[float], "1,2.5", [1.0, 2.5]),
        (list[bool], "true,no", [True, False]),
        (list[Path], "a,b", [Path("a"), Path("b")]),
        (list[Color], "RED,2", [Color.RED, Color.GREEN]),
        (list[Literal["a", "b"]], "a,a", ["a", "a"]),
        (list[Optional[int]], "1,None,", [1, None]),
        (list[Union[int, str]], "1,a", [1, "a"]),
        (list, "a,b", ["a", "b"]),
        (List, "a,b", ["a", "b"]),
        (Optional[list[str]], "", None),
        (Optional[list[str]], "a", ["a"]),
        (collections.abc.Sequence[int], "1,2", [1, 2]),
        (typing.Iterable[str], "a,b", ["a", "b"]),
        (dict[str, str], "a=1,b=", {"a": "1", "b": ""}),
        (dict[str, str], "", {}),
        (Dict[str, int], "a=1;b=2", {"a": 1, "b": 2}),
        (dict[int, float], "1=2", {1: 2.0}),
        (dict[str, bool], "a=yes", {"a": True}),
        (dict[str, list[str]], "a=1,2;b=3", {"a": ["1", "2"], "b": ["3"]}),
        (dict[str, list[int]], "a=1,2,b=3", {"a": [1, 2], "b": [3]}),
        (dict[str, tuple[int, int]], "a=1,2", {"a": (1, 2)}),
        (dict[str, Optional[int]], "a=,b=2", {"a": None, "b": 2}),
        (dict[str, Optional[list[str]]], "a=,b=2", {"a": None, "b": ["2"]}),
        (dict[Color, str], "RED=x", {Color.RED: "x"}),
        (dict, "a=1", {"a": "1"}),
        (Dict, "a=1", {"a": "1"}),
        (Optional[dict[str, str]], "", None),
        (typing.Mapping[str, int], "a=1", {"a": 1}),
        (tuple[int, str], "1,a", (1, "a")),
        (Tuple[int, ...], "1,2,3", (1, 2, 3)),
        (tuple[str, ...], "", ()),
        (tuple, "a,b", ("a", "b")),
        (Annotated[int, "-x"], "5", 5),
        (Annotated[Optional[int], "-x", object()], "5", 5),
        (Optional[Annotated[int, "-x"]], "5", 5),
        (list[Annotated[int, "x"]], "5", [5]),
        (Count, "5", 5),
        (Any, "5", "5"),
    ],
)
def test_reads_text(annotation: Any, text: str, value: Any) -> None:
    read = converter_for(annotation).read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "reason"),
    [
        (int, "a", "'a' is not an int"),
        (int, "", "'' is not an int"),
        (int, "1.5", "'1.5' is not an int"),
        (float, "x", "'x' is not a float"),
        (bool, "maybe", "'maybe' is not a bool: use true, false, yes, no, on, off, 1 or 0"),
        (bool, "", "'' is not a bool"),
        (bool, "2", "'2' is not a bool"),
        (Optional[int], "zz", "'zz' is not an int"),
        (Union[int, float], "x", "'x' is not int | float"),
        (Literal["fast", "slow"], "fsat", "'fsat' is not one of fast, slow; did you mean 'fast'?"),
        (Literal[1, 2], "3", "'3' is not one of 1, 2"),
        (Color, "REDD", "'REDD' is not one of RED, GREEN; did you mean 'RED'?"),
        (Path, "", "a path cannot be empty"),
        (list[int], "1,x", "'x' is not an int"),
        (dict[str, int], "a=1,b=x", "b: 'x' is not an int"),
        (dict[str, str], "a", "'a' is not of the form key=value,key2=value2"),
        (tuple[int, int], "1", "'1' has 1 items, expected 2"),
        (tuple[int, int], "1,2,3", "'1,2,3' has 3 items, expected 2"),
    ],
)
def test_refuses_text(annotation: Any, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        converter_for(annotation).read(text)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (str, "5", "5"),
        (int, 5, 5),
        (int, "5", 5),
        (float, 5, 5.0),
        (float, "5", 5.0),
        (bool, True, True),
        (bool, "yes", True),
        (Optional[int], None, None),
        (Optional[int], "5", 5),
        (Optional[str], "", ""),
        (Union[int, str], "5", "5"),
        (Union[int, str, None], "5", "5"),
        (Union[int, str], 5, 5),
        (Union[int, float], 0.5, 0.5),
        (Union[bool, int], True, True),
        (Union[bool, int], 1, 1),
        (Literal[1, "a"], 1, 1),
        (Literal[1, "a"], "a", "a"),
        (Color, Color.RED, Color.RED),
        (Color, 2, Color.GREEN),
        (Color, "r", Color.RED),
        (Path, Path("a"), Path("a")),
        (Path, "a", Path("a")),
        (list[int], [1, "2"], [1, 2]),
        (list[int], (1,), [1]),
        (list[int], "1,2", [1, 2]),
        (tuple[int, ...], [1], (1,)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (dict[str, list[str]], {"a": ["x", "y"]}, {"a": ["x", "y"]}),
        (dict[str, str], "a=1", {"a": "1"}),
        (Any, [1], [1]),
    ],
)
def test_checks_typed_values_and_reads_text_among_them(
    annotation: Any, given: Any, value: Any
) -> None:
    checked = converter_for(annotation).read(given, typed=True)
    assert checked == value
    assert type(checked) is type(value)


@pytest.mark.parametrize(
    ("annotation", "given", "reason"),
    [
        (str, 5, "expected str, got 5 (int)"),
        (str, None, "expected str, got null"),
        (int, True, "expected int, got True (bool)"),
        (int, 1.5, "expected int, got 1.5 (float)"),
        (int, None, "expected int, got null"),
        (float, False, "expected float, got False (bool)"),
        (bool, 1, "expected bool, got 1 (int)"),
        (Optional[int], [], "expected int, got [] (list)"),
        (Union[int, float], None, "expected int | float, got null"),
        (Literal[1, "a"], True, "expected {1,a}, got True (bool)"),
        (Color, 3, "expected {RED,GREEN}, got 3 (int)"),
        (Path, 3, "expected Path, got 3 (int)"),
        (list[str], {"a": 1}, "expected list[str], got {'a': 1} (dict)"),
        (list[str], [1], "expected str, got 1 (int)"),
        (dict[str, str], ["a"], "expected dict[str, str], got ['a'] (list)"),
        (dict[str, int], {"a": None}, "a: expected int, got null"),
        (tuple[int, int], [1], "'[1]' has 1 items, expected 2"),
    ],
)
def test_refuses_values_of_another_type(annotation: Any, given: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        converter_for(annotation).read(given, typed=True)
    assert str(error.value) == reason


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (bytes, "bytes"),
        (set[str], "set[str]"),
        (Color.__class__, "EnumType"),
        (list[list[str]], "list[list[str]]"),
        (list[dict[str, str]], "list[dict[str, str]]"),
        (dict[str, dict[str, str]], "dict[str, dict[str, str]]"),
        (dict[list[str], str], "dict[list[str], str]"),
        (tuple[list[str], int], "tuple[list[str], int]"),
        (typing.Callable[[], int], "Callable[[], int]"),
        (Optional[bytes], "bytes"),
        (os.PathLike, "PathLike"),
        (enum.Enum, "Enum"),
        (typing.TypeVar("T"), "~T"),
        (list[typing.TypeVar("T")], "~T"),
        (5, "5"),
        (UnsupportedTypeError, "UnsupportedTypeError"),
    ],
)
def test_other_types_are_refused_by_name(annotation: Any, shown: str) -> None:
    with pytest.raises(UnsupportedTypeError) as error:
        converter_for(annotation)
    assert str(error.value).replace("EnumMeta", "EnumType") == shown


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type X = ...` came with Python 3.12")
def test_type_aliases() -> None:
    alias = vars(typing)["TypeAliasType"]("Counts", list[int])
    assert converter_for(alias).read("1,2") == [1, 2]
