"""Parallel coordinates as SVG: one axis for each column, one line for each element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from torchx_cli.output.ranking import number_of

_WIDTH, _HEIGHT = 720, 260
_LEFT, _TOP, _BOTTOM = 60, 36, 236
_MOST_AXES = 8
_MOST_LINES = 2000
_LONGEST = 16
# A logarithmic axis has positive values, the largest at least this multiple of the smallest.
_LOGARITHMIC = 100.0

#: Returns the position of a value on an axis, in pixels from the top; None means no position.
Scale = Callable[[object], "float | None"]


def parallel_coordinates(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], best: int | None
) -> str:
    """Return a plot as SVG; the text is empty if no row has values in two columns.

    Args:
        rows: The values of each element, by column.
        columns: The axes, from left to right; of more than eight, the last one and the first seven.
        best: Index of the row that is drawn thick; None means none.
    """
    if len(columns) > _MOST_AXES:
        columns = [*columns[: _MOST_AXES - 1], columns[-1]]
    gap = (_WIDTH - 2 * _LEFT) / max(1, len(columns) - 1)
    places = [_LEFT + number * gap for number in range(len(columns))]
    axes = [_axis([row.get(name) for row in rows]) for name in columns]
    lines = []
    for index, row in enumerate(rows[:_MOST_LINES]):
        heights = [scale(row.get(name)) for name, (scale, _) in zip(columns, axes, strict=True)]
        points = [f"{x:g},{y:.1f}" for x, y in zip(places, heights, strict=True) if y is not None]
        if len(points) > 1:
            style = (
                'stroke="#d9822b" stroke-width="3"'
                if index == best
                else 'stroke="#4a7fe0" stroke-opacity="0.45" stroke-width="1.5"'
            )
            title = ", ".join(f"{name}: {_short(row.get(name))}" for name in columns)
            lines.append(
                f'<polyline points="{" ".join(points)}" fill="none" {style}>'
                f"<title>{escape(title)}</title></polyline>"
            )
    if not lines:
        return ""
    parts = [
        f'<line x1="{x:g}" x2="{x:g}" y1="{_TOP}" y2="{_BOTTOM}" stroke="currentColor"'
        f' stroke-opacity="0.5"/><text x="{x:g}" y="16" text-anchor="middle" font-weight="600">'
        f"{_label(name)}</text>"
        + "".join(
            f'<text x="{x + 5:g}" y="{y + (12 if y == _TOP else -4):g}">{_label(text)}</text>'
            for text, y in ticks
        )
        for x, name, (_, ticks) in zip(places, columns, axes, strict=True)
    ]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" style="max-width:{_WIDTH}px;width:100%" role="img"'
        f' aria-label="Parallel coordinates of {len(lines)} elements" font-size="12"'
        f' font-family="sans-serif" fill="currentColor">{"".join(lines + parts)}</svg>'
    )


def _axis(values: Sequence[object]) -> tuple[Scale, Sequence[tuple[object, float]]]:
    """Return the scale of an axis, and its labels with their positions."""
    present = [value for value in values if value is not None]
    numbers = [found for value in present if (found := number_of(value)) is not None]
    if numbers and all(number_of(v) is not None or isinstance(v, float) for v in present):
        low, high = min(numbers), max(numbers)
        is_log = low > 0 and high >= _LOGARITHMIC * low

        def place(value: object) -> float | None:
            found = number_of(value)
            if found is None:
                return None
            ends = [math.log(n) if is_log else n for n in (found, low, high)]
            return _BOTTOM - (_BOTTOM - _TOP) * (ends[0] - ends[1]) / ((ends[2] - ends[1]) or 1.0)

        ticks: list[tuple[object, float]] = [(f"{low:.4g}", _BOTTOM)]
        return place, ticks if low == high else [*ticks, (f"{high:.4g}", _TOP)]
    names = sorted({str(value) for value in present})
    gap = (_BOTTOM - _TOP) / max(1, len(names) - 1)
    heights = {name: _BOTTOM - index * gap for index, name in enumerate(names)}
    return lambda value: heights.get(str(value)), list(heights.items())[:12]


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _label(value: object) -> str:
    return escape(_short(value))
