r"""Lines of logs: splitting text at each ``\n``, and selecting lines by a regular expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchx_specs.schedulers.api import compile_regex


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

    Chunks are never joined: a line that continues in the next chunk is two items. Older plugins
    pass lines without their ``\n``.
    """
    for chunk in chunks:
        yield from split_lines(chunk)


def filter_regex(regex: str, data: Iterable[str]) -> Iterable[str]:
    """Return a lazy iterator of the items in which ``regex`` is found (:func:`re.search`).

    Raises:
        RequestError: ``regex`` is not a regular expression.
    """
    return filter(compile_regex(regex).search, data)
