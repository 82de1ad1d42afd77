"""Draws a parameter or metric of a sweep against another one, with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx_cli.output.ranking import check_column, number_of
from torchx_specs.errors import RequestError
from torchx_sweep.elements import shown_parameter

#: The suffixes of the files to which plots can be written.
FORMATS = (".svg", ".png")
# The horizontal axis is logarithmic if its largest value is at least this multiple of its smallest,
# and all its values are positive.
_LOGARITHMIC = 100.0


@dataclass
class Series:
    """The points of one line.

    Args:
        label: Text of the legend; empty if the plot has one line for all elements.
        points: The positions on the horizontal and vertical axis, from left to right.
    """

    label: str
    points: list[tuple[Any, float]] = field(default_factory=list)


def check_file(path: str) -> None:
    """Raise RequestError if the suffix of a file is not a format of plots."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise RequestError(
            f"--plot '{path}': the suffix '{suffix}' is not a format of plots; valid suffixes:"
            f" {', '.join(FORMATS)}"
        )


def make_series(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, by: str | None = None
) -> list[Series]:
    """Return the lines of a plot.

    Rows without a number in column ``y``, or without a value in column ``x``, are left out.

    Args:
        rows: The parameters and metrics of each element.
        x: Name of the column of the horizontal axis.
        y: Name of the column of the vertical axis.
        by: Name of a column; each of its values gets a line. None means one line.

    Raises:
        RequestError: A column does not exist, or no element has both values.
    """
    for option, name in (("--x", x), ("--y", y), ("--by", by)):
        if name is not None:
            check_column(option, name, rows)
    series: dict[str, Series] = {}
    numeric = all(number_of(row[x]) is not None for row in rows if row.get(x) is not None)
    for row in rows:
        height = number_of(row.get(y))
        if height is None or row.get(x) is None:
            continue
        label = "" if by is None else f"{by}={shown_parameter(by, row.get(by))}"
        position = number_of(row[x]) if numeric else shown_parameter(x, row[x])
        series.setdefault(label, Series(label)).points.append((position, height))
    if not series:
        raise RequestError(f"--y {y}: no element has a number there, and a value of '{x}'")
    for one in series.values():
        one.points.sort()
    return list(series.values())


def draw(path: str, series: Sequence[Series], x: str, y: str, title: str) -> None:
    """Write a plot to a file; replace an existing file.

    Args:
        path: The file; its suffix is one of :data:`FORMATS`.
        series: The lines, from :func:`make_series`.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        title: Title of the plot.

    Raises:
        RequestError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RequestError(
            "--plot needs matplotlib, which is not installed; run: pip install 'torchx-sweep[plot]'"
        ) from None
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in series:
        positions, heights = zip(*one.points, strict=True)
        # Matplotlib would draw the text after "$" as a formula.
        axes.plot(positions, heights, marker="o", label=one.label.replace("$", r"\$"))
    if _is_logarithmic([position for one in series for position, _ in one.points]):
        axes.set_xscale("log")
    axes.set_xlabel(x.replace("$", r"\$"))
    axes.set_ylabel(y.replace("$", r"\$"))
    axes.set_title(title.replace("$", r"\$"), fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    if any(one.label for one in series):
        axes.legend()
    try:
        figure.savefig(path)
    except OSError as e:
        raise RequestError(f"--plot '{path}' cannot be written: {e.strerror}") from None


def _is_logarithmic(positions: Sequence[Any]) -> bool:
    if not all(isinstance(position, float) and position > 0 for position in positions):
        return False
    return bool(max(positions) >= _LOGARITHMIC * min(positions))
