"""What ``torchx tracker`` prints: tables, trees, JSON and YAML."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_specs.trackers.api import Lineage

TABLE = "table"
JSON = "json"
YAML = "yaml"


def write(text: str) -> None:
    """Writes text to standard output, with a newline at its end."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def as_plain(data: dict[str, Any], form: str) -> str:
    """Returns ``data`` for programs to read.

    Args:
        data: dicts, lists and scalars
        form: ``json`` or ``yaml``
    """
    if form == JSON:
        import json

        return json.dumps(_plain(data, finite=True))
    from torchx_specs.formats.documents import dump_yaml

    return dump_yaml(_plain(data))


def _plain(data: Any, *, finite: bool = False) -> Any:
    """``data`` as dicts, lists and scalars; what else a tracker gave, as text.

    Args:
        data: what trackers answered
        finite: numbers that JSON does not have become text too
    """
    if isinstance(data, float):
        odd = data != data or data in (float("inf"), float("-inf"))
        return str(data) if odd and finite else data
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if isinstance(data, Mapping):
        return {str(key): _plain(value, finite=finite) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value, finite=finite) for value in data]
    return str(data)


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns rows aligned under their headers, with a rule of dashes between.

    >>> print(format_table(["ID", "VALUE"], [["loss", "0.5"]]))
    ID    VALUE
    ----  -------
    loss  0.5
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(len(header) + 2, *(len(row[i]) for row in cells), 0) for i, header in enumerate(headers)
    ]
    lines = [headers, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def printable(text: str) -> str:
    """Returns text with what would move the cursor, or end the line, as an escape.

    >>> print(printable("a\\nb"))
    a\\nb
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_tree(lineage: Lineage) -> str:
    """Returns a lineage as a tree: first what the run was made from, then what was made from it.

    A run that several ways lead to is drawn once with its own; the other times it says so.
    """
    up: dict[str, list[tuple[str, str | None]]] = {}
    down: dict[str, list[tuple[str, str | None]]] = {}
    for link in lineage.links:
        up.setdefault(link.run_id, []).append((link.source_run_id, link.artifact_name))
        down.setdefault(link.source_run_id, []).append((link.run_id, link.artifact_name))
    lines = [printable(lineage.run_id)]
    halves = [("made from", up, "{run} ({artifact})"), ("made into", down, "{run} (by {artifact})")]
    halves = [half for half in halves if half[1].get(lineage.run_id)]
    for number, (title, ways, labelled) in enumerate(halves):
        last = number == len(halves) - 1
        lines.append(("└─ " if last else "├─ ") + title)
        lines += _branches(lineage.run_id, ways, labelled, "   " if last else "│  ")
    text = "\n".join(lines)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        text = text.translate(str.maketrans("│├└─", "||`-"))
        text = text.encode("ascii", "backslashreplace").decode()
    return text


def _branches(
    run_id: str,
    ways: dict[str, list[tuple[str, str | None]]],
    labelled: str,
    indent: str,
) -> list[str]:
    """The lines below a run; no recursion, as a chain of runs may be long."""
    lines: list[str] = []
    drawn = {run_id}
    todo = [(indent, *step) for step in _steps(ways.get(run_id, ()))]
    while todo:
        indent, run, label, last = todo.pop()
        label = (
            printable(run)
            if label is None
            else labelled.format_map({"run": printable(run), "artifact": printable(label)})
        )
        below = ways.get(run, ())
        seen = run in drawn
        again = " ..." if seen and below else ""
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{label}{again}")
        if not seen:
            drawn.add(run)
            deeper = indent + ("   " if last else "│  ")
            todo += [(deeper, *step) for step in _steps(below)]
    return lines


def _steps(
    links: Sequence[tuple[str, str | None]],
) -> list[tuple[str, str | None, bool]]:
    """One step for each run, with its artifacts as the label; the last first, as on a stack."""
    artifacts: dict[str, list[str]] = {}
    for run, artifact in links:
        artifacts.setdefault(run, []).extend([] if artifact is None else [artifact])
    steps = [(run, ", ".join(names) or None) for run, names in artifacts.items()]
    return [(run, label, run == steps[-1][0]) for run, label in reversed(steps)]
