"""Tables as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence


def csv_text(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table as CSV. A cell that a spreadsheet could run as a formula gets an apostrophe.

    >>> csv_text(["a", "b"], [["=1+1", "-1e-3"]])
    "a,b\n'=1+1,-1e-3\n"
    """
    lines = []
    for row in [headers, *rows]:
        # The module quotes a carriage return only if the line ends with one.
        csv.writer(line := io.StringIO(), lineterminator="\r\n").writerow(map(_cell, row))
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def markdown_text(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table as Markdown.

    >>> markdown_text(["a"], [["x|y"]])
    '| a |\n|---|\n| x\\|y |\n'
    """
    escaped = [
        [text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for text in row]
        for row in (headers, *rows)
    ]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([lines[0], "|" + "---|" * len(headers), *lines[1:]]) + "\n"


def _cell(text: str) -> str:
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
