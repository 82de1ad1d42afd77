"""Parse docstrings: Google style, and reST fields (``:param x:``)."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from typing import NamedTuple


class Docstring(NamedTuple):
    """The parts of a docstring."""

    short: str
    """The first line."""
    long: str
    """The rest of the description, up to the first section."""
    params: dict[str, str]
    """The text of each documented parameter, by name; ``*args`` has the key ``args``."""


_PARAMS = "args|arguments|parameters|params|keyword args|keyword arguments|other parameters"
_OTHERS = "attributes|returns?|yields?|raises?|except|exceptions|examples?"
_SECTION = re.compile(rf"(?:(?P<params>{_PARAMS})|{_OTHERS}):\s*", re.IGNORECASE)
_FIELD = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields?)"
    r"(?:\s[^:\n]*)?:(?=\s|$)"
)
_PARAM_FIELD = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?(?P<name>\*{0,2}\w+)\s*:(?P<text>.*)"
)
_PARAM = re.compile(r"^\*{0,2}(\w+)[^\S\n]*(?:\(.*?\))?[^\S\n]*:(.*)", re.MULTILINE)


def parse(text: str | None) -> Docstring:
    """Parse a docstring, with or without its common indentation."""
    lines = inspect.cleandoc(text or "").split("\n")
    end = next((i for i, line in enumerate(lines) if _starts_section(line)), len(lines))
    short, _, rest = "\n".join(lines[:end]).strip().partition("\n")
    params: dict[str, str] = {}
    while end < len(lines):
        start, end = end, end + 1
        while end < len(lines) and not _starts_section(lines[end]):
            end += 1
        header, body = lines[start], lines[start + 1 : end]
        field = _PARAM_FIELD.match(header)
        if field:
            params[field["name"].lstrip("*")] = _join(field["text"], body)
        elif (section := _SECTION.fullmatch(header)) and section["params"]:
            params.update(_google_params(body))
    return Docstring(short.strip(), rest.strip("\n").rstrip(), params)


def _starts_section(line: str) -> bool:
    return bool(_SECTION.fullmatch(line) or _FIELD.match(line))


def _google_params(body: list[str]) -> dict[str, str]:
    """Return the text of each parameter in an ``Args:`` section, including continuation lines."""
    first = next((line for line in body if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" "))]
    if not indent:  # "Args:" followed by text that is not indented
        return {}
    lines = itertools.takewhile(lambda line: line.startswith(indent) or not line.strip(), body)
    _, *parts = _PARAM.split(textwrap.dedent("\n".join(lines)))
    entries = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name: _join(text, more.split("\n")) for name, text, more in entries}


def _join(first: str, more: list[str]) -> str:
    rest = textwrap.dedent("\n".join(line.rstrip() for line in more)).strip("\n")
    return "\n".join(part for part in (first.strip(), rest) if part)
