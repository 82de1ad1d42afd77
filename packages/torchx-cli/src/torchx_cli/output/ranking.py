"""Orders runs and elements of sweeps by a parameter, a metric or another column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from torchx_specs.errors import RequestError, nearest

T = TypeVar("T")


def number_of(value: Any) -> float | None:
    """Return a value as a finite number, or None; MLflow's tags contain numbers as text."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def check_column(option: str, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise RequestError unless one of the rows has a column.

    Args:
        option: The option that names the column, for the error message.
        name: The column.
        rows: The parameters and metrics of each element.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if name not in columns:
        raise RequestError(
            f"{option} {name}: no element has this parameter or metric;"
            f"{nearest(name, columns)} columns: {', '.join(columns) or '(none)'}"
        )


def split_order(text: str, orders: Sequence[str]) -> tuple[str, bool]:
    """Return the column and whether the second order is meant, of ``NAME[:ORDER]``.

    >>> split_order("loss", ("min", "max")), split_order("a:b:max", ("min", "max"))
    (('loss', False), ('a:b', True))
    """
    name, colon, order = text.rpartition(":")
    return (name, order == orders[1]) if colon and order in orders else (text, False)


def ranked(
    elements: Sequence[T], rows: Sequence[Mapping[str, Any]], name: str, *, descending: bool
) -> list[T]:
    """Return elements ordered by a column: numbers first, then texts, then elements without it.

    A value that is no finite number, such as NaN, is like none.

    Args:
        elements: The elements.
        rows: The parameters and metrics of each element.
        name: The column.
        descending: Whether the largest value comes first.
    """
    keys = [_key(row.get(name)) for row in rows]
    order = sorted(range(len(keys)), key=lambda i: keys[i][1:], reverse=descending)
    order.sort(key=lambda i: keys[i][0])  # keeps the order within each kind of value
    return [elements[i] for i in order]


def _key(value: Any) -> tuple[int, float, str]:
    """Return the rank of a kind of value, and the value as a number or as text."""
    number = number_of(value)
    if number is not None:
        return 0, number, ""
    if value is None or isinstance(value, float):
        return 2, 0.0, ""
    return 1, 0.0, str(value)


def best(
    elements: Sequence[T], rows: Sequence[Mapping[str, Any]], name: str, *, largest: bool
) -> T:
    """Return the element with the smallest or largest number in a column.

    Raises:
        RequestError: The column does not exist, or no element has a number there.
    """
    check_column("--best", name, rows)
    if all(number_of(row.get(name)) is None for row in rows):
        raise RequestError(f"--best {name}: no element has a number there")
    return ranked(elements, rows, name, descending=largest)[0]


def with_numbers(elements: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return sets of parameters in which texts are numbers, if all texts of a parameter are.

    >>> with_numbers([{"lr": "1e-3", "n": "7"}, {"lr": "x", "n": "8"}])
    [{'lr': '1e-3', 'n': 7}, {'lr': 'x', 'n': 8}]
    """
    texts: dict[str, list[str]] = {}
    for values in elements:
        for name, value in values.items():
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)
    numeric = {name for name, found in texts.items() if all(_is_number(text) for text in found)}
    return [
        {
            name: _number(value) if name in numeric and isinstance(value, str) else value
            for name, value in values.items()
        }
        for values in elements
    ]


def _is_number(text: str) -> bool:
    # Digits such as 007 may be a name.
    digits = text.removeprefix("-")
    return number_of(text) is not None and not (len(digits) > 1 and digits[0] == "0" != digits[1:2])


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
