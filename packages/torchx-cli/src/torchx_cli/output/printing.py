"""Prints the result of a command: aligned text, JSON, YAML, CSV or Markdown."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_cli.output.colors import is_terminal, paint
from torchx_cli.output.terminal import write_utf8
from torchx_specs.errors import one_line
from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_specs.model.status import AppState, AppStatus

TABLE = "table"
JSON = "json"
YAML = "yaml"


def write(text: str) -> None:
    """Write text to standard output, and end it with a newline."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def write_data(data: object, output_format: str) -> None:
    """Write ``data`` as one line of JSON, or as YAML.

    Args:
        data: Dicts, lists and scalars; a value of another type is written as ``str()``.
        output_format: ``json`` or ``yaml``.
    """
    import json

    text = json.dumps(data, default=str, ensure_ascii=False) + "\n"
    if output_format == YAML:
        from torchx_specs.formats.documents import dump_yaml

        text = dump_yaml(json.loads(text))
    write_utf8(text)


def write_result(data: object, text: str, output_format: str) -> None:
    """Write a result: as text for a table, else as JSON or YAML."""
    if output_format == TABLE:
        write(text)
    else:
        write_data(data, output_format)


def json_data(value: Any) -> Any:
    """Return data for JSON: a number that is not finite becomes ``NaN`` or ``Infinity`` as text."""
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: json_data(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_data(item) for item in value]
    return value


def to_plain_data(data: object) -> Any:
    """Return ``data`` as JSON has it: dicts, lists and scalars; ``str()`` converts other types."""
    import json

    return json.loads(json.dumps(data, default=str))


def fits_terminal(columns: Iterable[Column], rows: Iterable[Any]) -> bool:
    """Return False if standard output is a terminal that is narrower than a table."""
    if not is_terminal(sys.stdout):
        return True
    from shutil import get_terminal_size

    from torchx_kit.text.tables import format_table

    lines = format_table(*table_cells(columns, rows)).splitlines()
    return max(map(len, lines)) <= get_terminal_size().columns


def write_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table; on a terminal, states are coloured."""
    from torchx_kit.text.tables import format_table

    states = rf"(?m)(?<=  )({'|'.join(_STATE_COLORS)})(?=  |$)"

    def painted(found: re.Match[str]) -> str:
        return paint(found[0], _STATE_COLORS[found[0]], sys.stdout)

    write(re.sub(states, painted, format_table(headers, rows)))


class Column(NamedTuple):
    """A column of a table, or a field of the same data in JSON and YAML, or both.

    Args:
        key: Name of the field; empty if only the table has the column.
        value: Returns the value of a row, for JSON and YAML.
        header: Header in the table; empty if only JSON and YAML have the field.
        text: Returns the text in the table; None means the value, and nothing for None.
    """

    key: str
    value: Callable[[Any], Any]
    header: str = ""
    text: Callable[[Any], str] | None = None


def write_rows(columns: Sequence[Column], rows: Iterable[Any], output_format: str) -> None:
    """Write rows as a table, JSON or YAML."""
    if output_format != TABLE:
        write_data([row_data(columns, row) for row in rows], output_format)
        return
    headers, cells = table_cells(columns, rows)
    write_table(headers, [list(map(one_line, row)) for row in cells])


def row_data(columns: Iterable[Column], row: Any) -> dict[str, Any]:
    """Return a row as data for JSON and YAML."""
    return {column.key: column.value(row) for column in columns if column.key}


def table_cells(
    columns: Iterable[Column], rows: Iterable[Any]
) -> tuple[list[str], list[list[str]]]:
    """Return the headers and the cells of a table."""
    shown = [column for column in columns if column.header]
    cells = [[_text((column.text or column.value)(row)) for column in shown] for row in rows]
    return [column.header for column in shown], cells


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def csv_text(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table as CSV. A cell that a spreadsheet could run as a formula gets an apostrophe.

    >>> csv_text(["a", "b"], [["=1+1", "-1e-3"]])
    "a,b\n'=1+1,-1e-3\n"
    """
    import csv
    import io

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


_STATE_COLORS = {
    "RUNNING": "BLUE",
    "SUCCEEDED": "GREEN",
    "FAILED": "RED",
    "CANCELLED": "ORANGE",
}


def state_name(state: AppState) -> str:
    """Return the name of a state, or its text if a plugin does not report an AppState."""
    return getattr(state, "name", None) or str(state)


def handle_data(app_handle: str) -> dict[str, Any]:
    """Return a handle and its parts."""
    parsed = parse_app_handle(app_handle)
    return {
        "handle": app_handle,
        "app_id": parsed.app_id,
        "scheduler": parsed.scheduler_backend,
    }


def run_data(app_handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Return the result of a submission; the state and the URL are None if unknown."""
    return {
        **handle_data(app_handle),
        "state": None if status is None else state_name(status.state),
        "ui_url": None if status is None else status.ui_url,
    }


def format_duration(seconds: float) -> str:
    """Return a duration with its two largest units.

    >>> [format_duration(s) for s in (0.2, 59.6, 723, 7200, 90000)]
    ['0 s', '59 s', '12 min 3 s', '2 h', '1 d 1 h']
    """
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 item``, ``2 items``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_time(when: datetime) -> str:
    """Return a time as local time without fractions of a second: ``2026-11-21 10:00:00``."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def rfc3339(when: datetime | None) -> str | None:
    """Return a time for JSON, in UTC: ``2026-11-21T10:00:00Z``; None stays None."""
    if when is None:
        return None
    text = when.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace(".000+", "+").replace("+00:00", "Z")


_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def format_bytes(size: int | None) -> str:
    """Return a number of bytes with a unit, in powers of 1000; "unknown" for None.

    >>> format_bytes(999), format_bytes(1_234_567)
    ('999 B', '1.2 MB')
    """
    if size is None:
        return "unknown"
    if size < 1000:
        return f"{size} B"
    value, power = size / 1000, 1
    while value >= 999.95 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {_UNITS[power]}"
