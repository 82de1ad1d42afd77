r"""Lines of logs: splitting text at each ``\n``, and selecting lines by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from torchx_specs.errors import RequestError


def split_lines(text: str) -> list[str]:
    r"""Split a text after each ``\n``, and only there; each line keeps its ``\n``."""
    lines = text.split("\n")
    last = lines.pop()
    out = [line + "\n" for line in lines]
    if last:
        out.append(last)
    return out


def split_lines_iterator(chunks: Iterable[str]) -> Iterator[str]:
    r"""Yield the lines of each chunk, as :func:`split_lines` returns them.

    Chunks are never joined, because older plugins pass lines without their ``\n``. So a line that
    continues in the next chunk becomes two items.
    """
    for chunk in chunks:
        yield from split_lines(chunk)


def attempt_mark(number: int) -> str:
    """Return the line that shows where an attempt begins (``LogQuery.attempts``), from 2 on."""
    return f"--- attempt {number} ---\n"


def filter_regex(regex: str, data: Iterable[str]) -> Iterable[str]:
    """Return a lazy iterator of the items in which ``regex`` is found (:func:`re.search`).

    Raises:
        RequestError: ``regex`` is not a regular expression.
    """
    return filter(compile_regex(regex).search, data)


def compile_regex(regex: str) -> re.Pattern[str]:
    """Return a compiled regular expression.

    Raises:
        RequestError: ``regex`` is not a regular expression.
    """
    try:
        return re.compile(regex)
    except (re.error, OverflowError, RecursionError) as e:
        raise RequestError(f"'{regex:.100}' is not a regular expression: {e}") from None
