"""Tests that a signature from source text equals the signature of the imported component."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.components.converters import Converter
from torchx_specs.components.signature import ComponentSignature, SourceExpression, signature_of
from torchx_specs.components.source import read_source

HEADER = """
import enum
import functools
import typing as t
from dataclasses import dataclass
from typing import *
from pathlib import Path

from torchx_specs import AppDef
import torchx_specs as specs

class Color(str, enum.Enum):
    RED = "r"
    GREEN = "G".lower()
    RESERVED_ = 1

    def shown(self) -> str:
        return self.name

class Plain:
    pass

Size = Literal["s", "m"]
Names: t.TypeAlias = "list[str]"
Count = NewType("Count", int)
LIMIT = 2 + 3
"""

TYPES = [
    "str",
    "bool",
    "Color",
    "t.Optional[Color]",
    "Size",
    "Names",
    "Count",
    "Path | None",
    "None | int",
    "int | str | None",
    "Union[int, Size]",
    "list",
    "List[Size]",
    "list[int | None]",
    "Sequence[Color]",
    "tuple[int, str]",
    "Tuple[float, ...]",
    "dict[str, list[Count]]",
    "Dict[Color, int]",
    "Mapping[str, Optional[Tuple[int, ...]]]",
    "Literal[1, 'a', None, True]",
    "Literal[Color.RED]",
    "Annotated[Optional[bool], '-x', 'text', '--long-name']",
    "'Optional[\"int\"]'",
    "Any",
    "bytes",
    "Plain",
    "Callable[[], int]",
    "list[Set[str]]",
    "list[list[str]]",
    "dict[str, dict[str, int]]",
    "tuple[str]",
    "bytes | None",
    "Optional[Plain]",
]

SIGNATURES = [
    "def comp() -> AppDef: ...",
    "def comp(a, b=1, c=None, d=print): ...",
    "def comp(a: int, /, b: str = 'x', *rest: Color, c: bool, d: float = -1.5) -> 'AppDef': ...",
    "def comp(*, a: dict[str, int] = {'x': 1}, b: int = LIMIT, **more: str) -> specs.AppDef: ...",
    "def comp(a: int = None, b: list[str] = [], *c) -> int: ...",
    "async def comp(a: int) -> AppDef: ...",
    (
        "class comp:\n  'Short.'\n  def __init__(self, a: int = 1, *b: str): 'Args:\\n  a: one'\n"
        "  def build(self) -> AppDef: ..."
    ),
    "class comp:\n  def build(self): ...",
    "class comp:\n  def __init__(self, a: int): ...",
    (
        "@dataclass\nclass comp:\n  'Doc.'\n  a: int\n  b: Color = Color.RED\n"
        "  def build(self) -> AppDef: ..."
    ),
    (
        'def comp(a: int, b: str = "") -> AppDef:\n    """Short.\n\n    Long.\n\n    Args:\n'
        '        a: First\n            and more.\n    """'
    ),
    (
        "def made(fn):\n  @functools.wraps(fn)\n  def inner(*a, **k): ...\n  return inner\n"
        "@made\ndef comp(a: Size = 's') -> AppDef: 'Doc.'"
    ),
    "try:\n  import nothing\nexcept ImportError:\n  def comp(a: int) -> AppDef: ...",
]

_numbers = itertools.count()
ATTRIBUTES = list(Converter.__annotations__)
Both = tuple[ComponentSignature, ComponentSignature]


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Both]:
    """Return a function that returns the signatures of ``comp``: imported, and from source."""

    def read(text: str) -> Both:
        path = tmp_path / f"components_{next(_numbers)}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
        found = read_source(str(path)).signature("comp")
        assert found is not None
        return signature_of(module.comp), found

    return read


def record(signature: ComponentSignature, source: ComponentSignature) -> dict[str, Any]:
    """Return what a signature says, without defaults that are expressions in ``source``."""
    unknown = {p.name for p in source.parameters if isinstance(p.default, SourceExpression)}
    parameters = [
        p._replace(
            converter=p.converter and {n: getattr(p.converter, n) for n in ATTRIBUTES},
            default="?" if p.name in unknown else p.default,
            annotation=bool(p.annotation),
        )
        for p in (*signature.parameters, *filter(None, [signature.varargs]))
    ]
    equal = {n: getattr(signature, n) for n in ("name", "names", "varkw", "doc", "problem")}
    return {**equal, "parameters": parameters, "returns": signature.returns.rpartition(".")[2]}


FUTURE = ["", "from __future__ import annotations\n"]


@pytest.mark.parametrize("future", FUTURE)
@pytest.mark.parametrize("annotation", TYPES)
def test_both_sources_agree_about_types(both: Any, annotation: str, future: str) -> None:
    text = f"def comp(x: {annotation}, *y: {annotation}, z: {annotation} = None) -> AppDef: ..."
    imported, source = both(f"{future}{HEADER}\n{text}")
    assert record(source, source) == record(imported, source)


@pytest.mark.parametrize("future", FUTURE)
@pytest.mark.parametrize("text", SIGNATURES)
def test_both_sources_agree_about_signatures(both: Any, text: str, future: str) -> None:
    imported, source = both(f"{future}{HEADER}\n{text}")
    assert record(source, source) == record(imported, source)
    assert [name for name, _ in source.violations()] == [n for n, _ in imported.violations()]
