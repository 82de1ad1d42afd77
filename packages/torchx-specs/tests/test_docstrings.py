"""Tests of the parser of docstrings."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs.components.docstrings import Docstring, parse

GOOGLE = """Short.

    Long one
    two lines::

        code

    Args:
        x: about x
            more x
        y (int, optional): about y. Defaults to 3.

            a paragraph
              indented
        *args: the rest
        **kw: more
        url: see http://x/y: it's there

    Returns:
        x: not a parameter

    Raises:
        ValueError: when wrong
    """

PARAMS = {
    "x": "about x\nmore x",
    "y": "about y. Defaults to 3.\na paragraph\n  indented",
    "args": "the rest",
    "kw": "more",
    "url": "see http://x/y: it's there",
}


def test_google_style() -> None:
    assert parse(GOOGLE) == Docstring("Short.", "Long one\ntwo lines::\n\n    code", PARAMS)


def test_indentation_removed_by_the_compiler_does_not_matter() -> None:
    # Python 3.13 removes the common indentation of docstrings when it compiles a module.
    first, _, rest = GOOGLE.partition("\n")
    assert parse(first + "\n" + textwrap.dedent(rest)) == parse(GOOGLE)
    assert parse(f"\n    {GOOGLE}") == parse(GOOGLE)


@pytest.mark.parametrize("header", ["Args", "Arguments", "Parameters", "Params", "Keyword Args"])
def test_names_of_the_section(header: str) -> None:
    assert parse(f"S.\n\n{header}:\n    x: y\n").params == {"x": "y"}


def test_rest_fields() -> None:
    doc = parse(
        """S.

        :param x: about x
            more
        :param int y: about y
        :type x: str
        :returns: :param z: not one
        :raises ValueError: when wrong
        """
    )
    assert doc == Docstring("S.", "", {"x": "about x\nmore", "y": "about y"})


def test_rest_roles_are_text() -> None:
    assert parse("S.\n\n:py:func:`f` does it.\n").long == ":py:func:`f` does it."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Docstring("", "", {})),
        ("", Docstring("", "", {})),
        ("   \n  ", Docstring("", "", {})),
        ("Only short", Docstring("Only short", "", {})),
        ("\n    Short\n    goes on\n\n    Long", Docstring("Short", "goes on\n\nLong", {})),
        (
            "S.\n\nNote: (a, b) exclude each other.\n",
            Docstring("S.", "Note: (a, b) exclude each other.", {}),
        ),
        ("S.\n\nUsage:\n    do it\n", Docstring("S.", "Usage:\n    do it", {})),
        ("S.\n\nArgs:\n", Docstring("S.", "", {})),
        ("S.\n\nArgs:\nx: not indented\n", Docstring("S.", "", {})),
        ("S.\n\nArgs:\n    x:\n        below\n", Docstring("S.", "", {"x": "below"})),
        ("S.\n\nArgs:\n    x:\n    y: b\n", Docstring("S.", "", {"x": "", "y": "b"})),
        (
            "S.\n\nArgs:\n    x: a\n    no colon here\n",
            Docstring("S.", "", {"x": "a\nno colon here"}),
        ),
        ("\n    Args:\n        x: a\n", Docstring("", "", {"x": "a"})),
        ("\nArgs:\n    x: a\n", Docstring("", "", {"x": "a"})),
        ("   S.\n\n    Long\n", Docstring("S.", "Long", {})),
        ("S.\n\nExample:\n    Args:\n        x: a\n", Docstring("S.", "", {})),
    ],
)
def test_edges(text: str | None, expected: Docstring) -> None:
    assert parse(text) == expected


@given(st.text(alphabet="ab :*()\n\tArgs:param"))
def test_any_text_is_parsed(text: str) -> None:
    doc = parse(text)
    assert "\n" not in doc.short
    assert all(name.isidentifier() or name[0].isdigit() for name in doc.params)
