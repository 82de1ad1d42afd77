"""Reads docstrings: Google style, and reST fields (``:param x:``) for those who write them."""

from __future__ import annotations

import re
from typing import NamedTuple


class Docstring(NamedTuple):
    """What a docstring says.

    Attributes:
        short: its first line
        long: the rest of the description, up to the first section
        params: text for each documented parameter; the stars of ``*args`` are not part of the name
    """

    short: str
    long: str
    params: dict[str, str]


_SECTIONS = (
    "args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes|"
    "returns|return|yields|yield|raises|raise|except|exceptions|example|examples"
)
_PARAM_SECTIONS = frozenset(
    {
        "args",
        "arguments",
        "parameters",
        "params",
        "keyword args",
        "keyword arguments",
        "other parameters",
    }
)
_SECTION = re.compile(rf"({_SECTIONS}):\s*", re.IGNORECASE)
_FIELD = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields?)"
    r"(?:\s[^:\n]*)?:(?=\s|$)"
)
_PARAM_FIELD = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?(?P<name>\*{0,2}\w+)\s*:(?P<text>.*)"
)
_PARAM = re.compile(r"(?P<name>\*{0,2}\w+)\s*(?:\(.*?\))?\s*:(?P<text>.*)")
_INDENT = re.compile(r"[ ]*")


def parse(text: str | None) -> Docstring:
    """Parses a docstring, whether or not its common indentation was removed."""
    lines = _clean(text or "").split("\n")
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
        elif header.strip().rstrip(":").rstrip().lower() in _PARAM_SECTIONS:
            params.update(_google_params(body))
    return Docstring(short.strip(), rest.strip("\n").rstrip(), params)


def _starts_section(line: str) -> bool:
    return bool(_SECTION.fullmatch(line) or _FIELD.match(line))


def _google_params(body: list[str]) -> dict[str, str]:
    """Splits the body of an ``Args:`` section; deeper indented lines continue a text."""
    first = next((line for line in body if line.strip()), "")
    base = _indent(first)
    if base == 0:  # "Args:" followed by prose at its own level
        return {}
    params: dict[str, str] = {}
    current: tuple[str, str, list[str]] | None = None
    for line in body:
        indent = _indent(line)
        if line.strip() and indent < base:
            break
        match = _PARAM.match(line.strip()) if line.strip() and indent == base else None
        if match:
            if current:
                params[current[0]] = _join(current[1], current[2])
            current = (match["name"].lstrip("*"), match["text"], [])
        elif current:
            current[2].append(line)
    if current:
        params[current[0]] = _join(current[1], current[2])
    return params


def _join(first: str, more: list[str]) -> str:
    return "\n".join(part for part in (first.strip(), _dedent(more)) if part)


def _indent(line: str) -> int:
    match = _INDENT.match(line)
    return match.end() if match else 0


def _dedent(lines: list[str]) -> str:
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:].rstrip() for line in lines).strip("\n")


def _clean(text: str) -> str:
    """Removes the indentation that all lines but the one beside the quotes share."""
    first, _, rest = text.expandtabs().partition("\n")
    return "\n".join([first.strip(), _dedent(rest.split("\n"))]).strip("\n")
