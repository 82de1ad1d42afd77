from __future__ import annotations

import argparse
import inspect
import sys
from typing import Any, Dict, List, Optional, Union

import pytest

from torchx._legacy_linter import TorchXArgumentHelpFormatter
from torchx.util.types import (
    decode,
    decode_from_string,
    decode_optional,
    get_argparse_param_type,
    get_type_name,
    is_bool,
    is_primitive,
    none_throws,
    to_dict,
    to_list,
)


def test_to_list() -> None:
    assert to_list("") == []
    assert to_list("a, b,c") == ["a", "b", "c"]
    assert to_list("a;b") == ["a;b"]


def test_to_dict() -> None:
    assert to_dict("") == {}
    assert to_dict("a=1,b=2") == to_dict("a=1;b=2") == {"a": "1", "b": "2"}
    assert to_dict("FOO=a,b,BAR=c") == {"FOO": "a,b", "BAR": "c"}
    assert to_dict("FOO=,") == {"FOO": ","}
    assert to_dict("a='x,y=1',b=''") == {"a": "x,y=1", "b": ""}
    for malformed in ("a", "a=", "a=1=2"):
        with pytest.raises(ValueError, match="key=value"):
            to_dict(malformed)


@pytest.mark.parametrize(
    ("value", "annotation", "decoded"),
    [
        (5, int, 5),
        (None, int, None),
        ("x", str, "x"),
        ("", str, ""),
        ("true", bool, True),
        ("False", bool, False),
        ("5", int, 5),
        ("5", Optional[int], 5),
        ("a,b", List[str], ["a", "b"]),
        ("a,b", list[str] | None, ["a", "b"]),
        ("", list[str], None),
        ("", Dict[str, str], None),
        ("a=1", Dict[str, int], {"a": 1}),
    ],
)
def test_decode(value: Any, annotation: Any, decoded: Any) -> None:
    assert decode(value, annotation) == decoded


def test_decode_refuses_other_types_and_text() -> None:
    with pytest.raises(ValueError, match="unsupported argument annotation `bytes`"):
        decode("x", bytes)
    with pytest.raises(ValueError, match="'maybe' is not a bool"):
        decode("maybe", bool)


def test_decode_from_string_is_for_lists_and_dicts() -> None:
    assert decode_from_string("1,2", list[int]) == [1, 2]
    assert decode_from_string("a=1", Dict[str, str]) == {"a": "1"}
    assert decode_from_string("", List[str]) is None
    with pytest.raises(ValueError, match="expected dict or list"):
        decode_from_string("1", int)


def test_predicates() -> None:
    assert is_bool(bool)
    assert not is_bool(int)
    assert all(is_primitive(tp) for tp in (int, str, float))
    assert not any(is_primitive(tp) for tp in (bool, list, Optional[int]))


@pytest.mark.parametrize(
    ("annotation", "inner"),
    [
        (int, int),
        (Optional[int], int),
        (int | None, int),
        (None | int, int),
        (Optional[List[int]], List[int]),
        (Union[int, str], Union[int, str]),
        (Union[int, str, None], Union[int, str, None]),
    ],
)
def test_decode_optional(annotation: Any, inner: Any) -> None:
    assert decode_optional(annotation) == inner


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [(int, int), (str, str), (float, float), (bool, str), (List[int], str), (Optional[int], str)],
)
def test_get_argparse_param_type(annotation: Any, expected: Any) -> None:
    parameter = inspect.Parameter("p", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    assert get_argparse_param_type(parameter) is expected


def test_none_throws() -> None:
    assert none_throws(0) == 0
    with pytest.raises(AssertionError, match="Unexpected `None`"):
        none_throws(None)
    with pytest.raises(AssertionError, match="no app"):
        none_throws(None, "no app")


def test_the_argparse_formatter_shows_types_and_defaults() -> None:
    parser = argparse.ArgumentParser(
        "x", description="a\n  b", formatter_class=TorchXArgumentHelpFormatter
    )
    parser.add_argument("--n", type=int, default=3, help="how many")
    text = parser.format_help()
    assert "a\n  b" in text
    assert "--n int" in text
    assert "how many (default: 3)" in text


@pytest.mark.parametrize(
    ("tp", "name"),
    [
        (int, "int"),
        (List[str], "List[str]"),
        (Dict[str, int], "Dict[str, int]"),
        (Optional[int], "Optional[int]" if sys.version_info < (3, 14) else "int | None"),
        (list[str], "list[str]"),
    ],
)
def test_the_name_of_a_type_has_its_arguments(tp: object, name: str) -> None:
    assert get_type_name(tp) == name
