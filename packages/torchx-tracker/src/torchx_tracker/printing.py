"""Output of ``torchx tracker``: tables, trees, JSON and YAML."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_specs.trackers.api import LineageLink

TABLE = "table"
JSON = "json"
YAML = "yaml"


def write(text: str) -> None:
    """Write text to standard output, with a newline at its end."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def as_plain(data: dict[str, Any], output_format: str) -> str:
    """Return ``data`` as JSON or YAML.

    Args:
        data: Dictionaries, lists and scalars.
        output_format: ``json`` or ``yaml``.
    """
    if output_format == JSON:
        import json

        return json.dumps(_plain(data, finite=True))
    from torchx_specs.formats.documents import dump_yaml

    return dump_yaml(_plain(data))


def _plain(data: Any, *, finite: bool = False) -> Any:
    """Return ``data`` as dictionaries, lists and scalars; other values become text.

    Args:
        data: The results of trackers.
        finite: Whether NaN and infinity, which JSON lacks, also become text.
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


def table_text(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table whose cells have no unprintable characters."""
    from torchx_kit.text.tables import format_table

    return format_table(headers, [[printable(cell) for cell in row] for row in rows])


def printable(text: str) -> str:
    r"""Return text with unprintable characters escaped, such as line ends and cursor movements.

    >>> print(printable("a\nb"))
    a\nb
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_tree(run_id: str, links: Iterable[LineageLink]) -> str:
    """Return a lineage as a tree: the ancestors of the run, then its descendants.

    If several paths lead to a run, its branches are shown once; ``...`` marks the other places.
    Several trackers may have the same link, which is shown once. If standard output cannot encode
    the tree, the tree is ASCII text.
    """
    up: dict[str, list[tuple[str, str | None]]] = {}
    down: dict[str, list[tuple[str, str | None]]] = {}
    for link in dict.fromkeys(links):
        up.setdefault(link.run_id, []).append((link.source_run_id, link.artifact_name))
        down.setdefault(link.source_run_id, []).append((link.run_id, link.artifact_name))
    lines = [printable(run_id)]
    halves = [("made from", up, "{run} ({artifact})"), ("made into", down, "{run} (by {artifact})")]
    halves = [half for half in halves if half[1].get(run_id)]
    for number, (title, edges, label_format) in enumerate(halves):
        last = number == len(halves) - 1
        lines.append(("└─ " if last else "├─ ") + title)
        lines += _branches(run_id, edges, label_format, "   " if last else "│  ")
    text = "\n".join(lines)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        text = text.translate(str.maketrans("│├└─", "||`-"))
        text = text.encode("ascii", "backslashreplace").decode()
    return text


def _branches(
    run_id: str,
    edges: dict[str, list[tuple[str, str | None]]],
    label_format: str,
    indent: str,
) -> list[str]:
    """Return the lines below a run, without recursion, because chains of runs may be long."""
    lines: list[str] = []
    shown = {run_id}
    stack = [(indent, *step) for step in _steps(edges.get(run_id, ()))]
    while stack:
        indent, run, label, last = stack.pop()
        label = (
            printable(run)
            if label is None
            else label_format.format_map({"run": printable(run), "artifact": printable(label)})
        )
        below = edges.get(run, ())
        seen = run in shown
        again = " ..." if seen and below else ""
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{label}{again}")
        if not seen:
            shown.add(run)
            deeper = indent + ("   " if last else "│  ")
            stack += [(deeper, *step) for step in _steps(below)]
    return lines


def _steps(
    links: Sequence[tuple[str, str | None]],
) -> list[tuple[str, str | None, bool]]:
    """Return each linked run, its artifacts as a label, and whether it is the last.

    The order is reversed, because the caller takes items from the end.
    """
    artifacts: dict[str, list[str]] = {}
    for run, artifact in links:
        artifacts.setdefault(run, []).extend([] if artifact is None else [artifact])
    steps = [(run, ", ".join(names) or None) for run, names in artifacts.items()]
    return [(run, label, run == steps[-1][0]) for run, label in reversed(steps)]
