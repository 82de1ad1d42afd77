"""Tests of the linter of components."""

from __future__ import annotations

import ast
import enum
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx_specs.file_linter import (
    ArgTypeValidator,
    ComponentFunctionValidator,
    LinterMessage,
    ReturnTypeValidator,
    get_fn_docstring,
    validate,
)

Lint = Callable[..., list[LinterMessage]]


@pytest.fixture
def lint(tmp_path: Path) -> Lint:
    def run(source: str, name: str = "comp", **kwargs: object) -> list[LinterMessage]:
        path = tmp_path / "components.py"
        path.write_text(source)
        return validate(str(path), name, **kwargs)

    return run


def descriptions(messages: list[LinterMessage]) -> str:
    assert all(message.severity == "error" for message in messages)
    return " / ".join(message.description for message in messages)


ACCEPTED = [
    "str",
    "int",
    "float",
    "bool",
    "Color",
    "mymodule.Color",
    "Path",
    "pathlib.Path",
    "Any",
    "Optional[int]",
    "t.Optional[int]",
    "int | None",
    "None | int",
    "Union[int, str]",
    "Union[int, str, None]",
    'Literal["a", "b"]',
    't.Literal["x"]',
    "List[str]",
    "t.List[int]",
    "list[int]",
    "list",
    "dict",
    "tuple",
    "list[Optional[int]]",
    "list[int | str]",
    "list[Color]",
    "Sequence[str]",
    "Dict[str, int]",
    "dict[str, list[str]]",
    "dict[str, Optional[List[str]]]",
    "dict[str, list[str] | None]",
    "dict[str, tuple[int, ...]]",
    "Mapping[str, str]",
    "tuple[int, str]",
    "tuple[int, ...]",
    'Annotated[int, "-x"]',
    'Annotated[Optional[List[str]], "-x"]',
    "Optional[list[str]]",
    "list[str] | None",
    '"int"',
    '"t.List[int]"',
    'List["int"]',
    '"Optional[int]"',
]

REJECTED = [
    "bytes",
    "set[str]",
    "t.Set[str]",
    "Callable[[], int]",
    "Callable",
    "list[list[str]]",
    "list[dict[str, str]]",
    "dict[str, dict[str, str]]",
    "dict[list[str], str]",
    "tuple[list[str], int]",
    "Optional",
    "MyGeneric[int]",
    "specs.AppDef",
    "make_type()",
    "5",
    '"list["',
    '"set[str]"',
]


CULPRITS = {"specs.AppDef": "AppDef"}


@pytest.mark.parametrize("annotation", ACCEPTED)
def test_supported_types_are_accepted(lint: Lint, annotation: str) -> None:
    source = f"def comp(*a: {annotation}, x: {annotation} = None) -> AppDef: ..."
    assert lint(source) == []
    assert lint(f"from __future__ import annotations\n{source}") == []


@pytest.mark.parametrize(
    ("annotation", "culprit"),
    [
        *((annotation, CULPRITS.get(annotation, annotation.strip('"'))) for annotation in REJECTED),
        ("Optional[bytes]", "bytes"),
        ("bytes | None", "bytes"),
        ("dict[str, list[bytes]]", "bytes"),
    ],
)
def test_unsupported_types_are_named_with_their_parameter(
    lint: Lint, annotation: str, culprit: str
) -> None:
    [message] = lint(f"def comp(a: int, x: {annotation}) -> AppDef: ...")
    assert message.name == "TorchxFunctionValidator"
    assert f"{culprit}'" in message.description
    assert re.search(r" for argument 'x: .*' in function 'comp'[:;]", message.description)
    assert "supported types: str, int" in message.description
    assert (message.line, message.char) == (1, 20)


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "returns", ["AppDef", "specs.AppDef", "torchx.specs.AppDef", '"AppDef"', '"specs.AppDef"']
)
def test_return_annotation_appdef_is_accepted(lint: Lint, returns: str) -> None:
    assert lint(f"def comp(a: int) -> {returns}: ...") == []


@pytest.mark.parametrize("returns", ["int", "Optional[AppDef]", "AppDefinition", "None", '"App["'])
def test_other_return_annotations_are_refused(lint: Lint, returns: str) -> None:
    [message] = lint(f"def comp() -> {returns}: ...")
    assert "comp has incorrect return annotation" in message.description
    assert "supported annotation: AppDef" in message.description


MISSING_RETURN = (
    "Function: comp missing return annotation or has unknown annotations."
    " Supported return annotation: AppDef"
)


def test_violations_are_listed_in_order_with_their_places(lint: Lint) -> None:
    messages = lint("def comp(\n  a,\n  *b,\n  c=1,\n  **d: str\n): ...")
    assert [(m.description.split(" in ")[0], m.line, m.char) for m in messages] == [
        (MISSING_RETURN, 1, 0),
        ("Missing type annotation for argument 'a'", 2, 2),
        ("Missing type annotation for argument 'b'", 3, 3),
        ("Missing type annotation for argument 'c'", 4, 2),
        (
            "Function comp takes **d: a component has to name its parameters",
            5,
            4,
        ),
    ]


def test_a_docstring_is_not_required(lint: Lint) -> None:
    assert lint("def comp() -> AppDef: ...") == []


def test_an_async_function_is_refused_as_such(lint: Lint) -> None:
    assert descriptions(lint("async def comp() -> AppDef: ...")) == (
        "Function comp is async; a component must be a plain def"
    )


class TestFinding:
    @pytest.mark.parametrize(
        "source",
        [
            "if True:\n    def comp(a) -> AppDef: ...",
            "try:\n    import x\nexcept ImportError:\n    def comp(a) -> AppDef: ...",
            "try:\n    import x\nfinally:\n    def comp(a) -> AppDef: ...",
            "if x:\n    pass\nelse:\n    def comp(a) -> AppDef: ...",
            "with x:\n    def comp(a) -> AppDef: ...",
            "@decorated\ndef comp(a) -> AppDef: ...",
        ],
    )
    def test_function_is_found_in_any_module_level_block(self, lint: Lint, source: str) -> None:
        assert "Missing type annotation for argument 'a'" in descriptions(lint(source))

    @pytest.mark.parametrize(
        "source",
        [
            "",
            "comp = 5",
            "from x import comp",
            "def other():\n    def comp() -> AppDef: ...",
            "class C:\n    def comp(self) -> AppDef: ...",
        ],
    )
    def test_other_functions_are_not_found(self, lint: Lint, source: str) -> None:
        assert lint(source) == [
            LinterMessage("TorchXValidator", "Function comp not found", line=0, char=0)
        ]

    def test_the_file_is_not_imported(self, lint: Lint, tmp_path: Path) -> None:
        marker = tmp_path / "ran"
        assert lint(f"open({str(marker)!r}, 'w')\ndef comp() -> AppDef: ...") == []
        assert not marker.exists()

    def test_a_syntax_error_has_its_place(self, lint: Lint) -> None:
        [message] = lint("x = 1\ndef comp(:\n")
        assert message.name == "TorchXValidator"
        assert "invalid syntax" in message.description
        assert message.line == 2

    def test_a_missing_file_is_a_message(self, tmp_path: Path) -> None:
        [message] = validate(tmp_path / "nope.py", "comp")
        assert "cannot read" in message.description
        assert "nope.py: No such file or directory" in message.description

    def test_bytes_that_are_no_source_are_a_message(self, tmp_path: Path) -> None:
        path = tmp_path / "x.py"
        path.write_bytes(b"a = '\xff'\x00\n")
        [message] = validate(path, "comp")
        assert message.name == "TorchXValidator"

    def test_the_encoding_of_the_file_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "x.py"
        path.write_bytes(
            "# -*- coding: latin-1 -*-\ndef comp(é: int) -> AppDef: ...".encode("latin-1")
        )
        assert validate(path, "comp") == []

    def test_a_changed_file_is_read_again(self, lint: Lint, tmp_path: Path) -> None:
        assert lint("def comp() -> AppDef: ...") == []
        assert lint("def comp(a) -> AppDef: ...") != []
        path = tmp_path / "components.py"
        stat = path.stat()
        path.write_text("def comp(a:b) -> AppDef: ..")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        assert lint("def comp(a:int) -> AppDef: ...") == []


class TestClasses:
    def test_constructor_and_build_are_checked(self, lint: Lint) -> None:
        source = """
class comp:
    def __init__(self, a, *rest, b: bytes = b""): ...
    def build(self) -> int: ...
"""
        assert [m.line for m in lint(source)] == [3, 3, 3, 4]
        text = descriptions(lint(source))
        assert "argument 'a'" in text
        assert "argument 'rest'" in text
        assert "for argument 'b: bytes'" in text
        assert "supported annotation: AppDef, not 'int'" in text

    @pytest.mark.parametrize(
        "source",
        [
            "class comp:\n  def __init__(self, a: int): ...\n  def build(self) -> AppDef: ...",
            "class comp:\n  def __init__(self, /, a: int): ...\n  def build(self) -> AppDef: ...",
            "class comp:\n  def build(self) -> 'specs.AppDef': ...",
            "class comp(Base): ...",
            "@dataclass\nclass comp:\n  a: int = 1\n  def build(self) -> AppDef: ...",
            "@dc.dataclass(frozen=True)\nclass comp:\n  a: int\n  def build(self) -> AppDef: ...",
        ],
    )
    def test_valid_classes_are_accepted(self, lint: Lint, source: str) -> None:
        assert lint(source) == []

    def test_fields_of_a_dataclass_are_its_parameters(self, lint: Lint) -> None:
        source = "@dataclass\nclass comp:\n  a: bytes\n  def build(self) -> AppDef: ..."
        assert "for argument 'a: bytes'" in descriptions(lint(source))

    def test_without_build(self, lint: Lint) -> None:
        assert "Class comp has no build method" in descriptions(lint("class comp:\n  x = 1"))

    def test_build_without_annotation(self, lint: Lint) -> None:
        assert "missing return annotation" in descriptions(
            lint("class comp:\n  def build(self): ...")
        )


class HasDocstring(ComponentFunctionValidator):
    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        if ast.get_docstring(app_specs_func_def):
            return []
        return [LinterMessage("mine", f"{app_specs_func_def.name}: no docstring", 1, 0, "warning")]


class TestValidators:
    def test_given_validators_replace_the_default_ones(self, lint: Lint) -> None:
        [message] = lint("def comp(a): ...", validators=[HasDocstring()])
        assert message == LinterMessage("mine", "comp: no docstring", 1, 0, "warning")
        assert lint("def comp(a):\n  'Doc.'", validators=[HasDocstring()]) == []

    def test_empty_validators_check_only_that_the_function_exists(self, lint: Lint) -> None:
        assert lint("def comp(a): ...", validators=[]) == []
        assert lint("", validators=[]) != []

    def test_validators_get_a_class_as_a_function(self, lint: Lint) -> None:
        source = "class comp:\n  'Doc.'\n  def __init__(self, a): ...\n  def build(self): ..."
        assert lint(source, validators=[HasDocstring()]) == []
        assert len(lint(source, validators=[ArgTypeValidator()])) == 1

    def test_required_return_type_can_be_chosen(self, lint: Lint) -> None:
        source = "def comp() -> m.Pipeline: ..."
        assert lint(source, validators=[ReturnTypeValidator("Pipeline")]) == []


class TestDocstringOfAFunction:
    def test_description_and_parameters(self) -> None:
        def comp(x: int, y: int = 3, *z: int) -> None:
            """Short.

            Long one
            two lines.

            Args:
                x: about x
                    more x
                y: about y
            """

        assert get_fn_docstring(comp) == (
            "Short.\nLong one\ntwo lines.",
            {"x": "about x\nmore x", "y": "about y", "z": " "},
        )

    def test_without_docstring_the_description_is_the_name_and_a_tip(self) -> None:
        def comp(x: int, y: int = 3) -> None: ...

        description, params = get_fn_docstring(comp)
        assert description.startswith("comp TIP: improve this help string by adding a docstring")
        assert params == {"x": " ", "y": " "}

    def test_docstring_of_a_class_includes_its_constructor(self) -> None:
        class Comp:
            """Builds."""

            def __init__(self, x: int) -> None:
                """
                Args:
                    x: about x
                """

        assert get_fn_docstring(Comp) == ("Builds.", {"x": "about x"})
