"""Tables as aligned text, for scripts."""

from __future__ import annotations

from collections.abc import Sequence


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
