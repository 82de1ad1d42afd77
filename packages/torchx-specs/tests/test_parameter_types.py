"""Tests that the linter, the parser and the help accept the same parameter types."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.components.converters import _GENERIC_TYPES, _TYPES
from torchx_specs.components.help import component_help
from torchx_specs.components.materialize import materialize_appdef
from torchx_specs.components.signature import ComponentSignature, read_signature
from torchx_specs.errors import ComponentArgumentError
from torchx_specs.file_linter import validate

HEADER = """
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import re
import fractions
import http
import os
import pathlib
import typing as t
import uuid
from collections.abc import Hashable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path, PosixPath, PurePath
from typing import *

from torchx_specs import AppDef, Resource, Role
import torchx_specs as specs

class Color(enum.Enum):
    RED = "red"

class Counter(enum.Enum):
    ONE = "1"

class Plain:
    pass

@dataclasses.dataclass
class Options:
    a: int = 0

Count = NewType("Count", int)
"""

#: Supported annotations, each with a text that the annotation's type accepts.
SUPPORTED = {
    "str": "a",
    "int": "1",
    "float": "1.5",
    "bool": "true",
    "None": "None",
    "Any": "a",
    "object": "a",
    "t.Any": "a",
    "Color": "RED",
    "Counter": "ONE",
    "http.HTTPStatus": "OK",
    "Path": "/a",
    "PurePath": "/a",
    "PosixPath": "/a",
    "pathlib.PurePosixPath": "/a",
    "Count": "1",
    "list": "a,b",
    "List": "a,b",
    "list[int]": "1,2",
    "t.List[int]": "1,2",
    "list[Color]": "RED",
    "Sequence": "a",
    "Sequence[str]": "a",
    "Iterable[int]": "1",
    "t.Collection[int]": "1",
    "tuple": "a,b",
    "Tuple": "a,b",
    "tuple[int, str]": "1,a",
    "tuple[int, ...]": "1,2,3",
    "dict": "a=b",
    "Dict": "a=b",
    "dict[str, int]": "a=1",
    "dict[str, list[int]]": "a=1,2",
    "dict[str, Optional[tuple[int, int]]]": "a=1,2",
    "Mapping[str, str]": "a=b",
    "collections.abc.Mapping[str, str]": "a=b",
    "t.MutableMapping[str, float]": "a=1",
    "Union[int, str]": "1",
    "Optional[int]": "1",
    "int | None": "1",
    "list[int] | None": "1",
    "Literal[1, 'a']": "a",
    "Literal[Color.RED]": "RED",
    "Annotated[int, '-x']": "1",
    "Annotated[Optional[List[str]], '-x']": "a",
    "'list[int]'": "1",
}

UNSUPPORTED = [
    "Tuple[int]",
    "tuple[str]",
    "bytes",
    "bytearray",
    "memoryview",
    "complex",
    "set",
    "set[str]",
    "frozenset[int]",
    "Set[str]",
    "AbstractSet[str]",
    "range",
    "slice",
    "type",
    "Type[int]",
    "Callable",
    "Callable[[], int]",
    "Iterator[int]",
    "Hashable",
    "PathLike",
    "os.PathLike[str]",
    "datetime.datetime",
    "datetime.date",
    "datetime.timedelta",
    "decimal.Decimal",
    "fractions.Fraction",
    "uuid.UUID",
    "enum.Enum",
    "Plain",
    "Options",
    "AppDef",
    "specs.Role",
    "Resource",
    "tuple[()]",
    "Tuple[()]",
    "list[list[str]]",
    "list[bytes]",
    "tuple[list[str], int]",
    "dict[str]",
    "dict[str, dict[str, str]]",
    "dict[list[str], str]",
    "dict[str, uuid.UUID]",
    "Optional[datetime.datetime]",
    "bytes | None",
    "Annotated[bytes, '-x']",
    "'set[str]'",
]

Component = Callable[..., Any]
_numbers = itertools.count()


@pytest.fixture
def component(tmp_path: Path) -> Callable[[str], tuple[Path, Component]]:
    """Return a function that writes a component with one parameter to a file, and imports it."""

    def make(annotation: str) -> tuple[Path, Component]:
        path = tmp_path / "components.py"
        path.write_text(f"{HEADER}\ndef comp(x: {annotation}) -> AppDef:\n    return AppDef('a')\n")
        spec = importlib.util.spec_from_file_location(f"typed_{next(_numbers)}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return path, module.comp

    return make


def type_in(signature: ComponentSignature) -> str:
    return signature.parameters[0].type_name


@pytest.mark.parametrize("annotation", SUPPORTED)
def test_supported_types_pass_lint_run_and_help(component: Any, annotation: str) -> None:
    path, comp = component(annotation)
    assert validate(path, "comp") == []
    assert materialize_appdef(comp, [f"--x={SUPPORTED[annotation]}"]).name == "a"
    help_text = component_help(comp)
    assert "(required)" in help_text
    assert "from Python only" not in help_text


@pytest.mark.parametrize("annotation", UNSUPPORTED)
def test_unsupported_types_fail_lint_run_and_help(component: Any, annotation: str) -> None:
    path, comp = component(annotation)
    [message] = validate(path, "comp")
    named = type_in(read_signature(comp)).rpartition(".")[2]
    assert re.match(
        "Unsupported (argument|container|tuple) type '|Non-primitive |Malformed dict type '",
        message.description,
    )
    assert f"{named}'" in message.description
    assert "argument 'x: " in message.description
    with pytest.raises(ComponentArgumentError, match="is not supported; supported types: str, int"):
        materialize_appdef(comp, ["--x=a"])
    assert "(from Python only)" in component_help(comp)


def test_every_type_of_the_table_is_tested() -> None:
    tested = " ".join(SUPPORTED)
    for known in [*_TYPES, *_GENERIC_TYPES]:
        name = getattr(known, "__name__", str(known)).removeprefix("typing.")
        assert name.replace("NoneType", "None").replace("UnionType", "|") in tested
