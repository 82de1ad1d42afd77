"""Output of ``torchx tracker``: tables, JSON and YAML."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

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
