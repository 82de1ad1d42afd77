"""The status and the elements of sweeps, as text, tables and data."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.times import moment
from torchx_sweep.elements import shortened_parameter, shown_parameter, shown_value
from torchx_sweep.store import ElementRecord, ElementState

if TYPE_CHECKING:
    from torchx_sweep.api import SweepStatus

_COLUMNS = ("state", "duration")
_LAST_COLUMNS = ("attempt", "handle", "reason")


def status_text(status: SweepStatus) -> str:
    """Return the status of a sweep as text for a terminal."""
    total = sum(status.counts.values())
    counts = ", ".join(f"{count} {state.value}" for state, count in status.counts.items())
    lines = [f"{status.handle}: {status.state.name}", f"{total} elements: {counts or 'none'}"]
    if status.note:
        lines.append(f"note: {status.note}")
    lines += [
        f"failed: element {element.number} ({_parameters(element)}): {element.reason}"
        + (f" [{element.handle}]" if element.handle else "")
        for element in status.first_failed
    ]
    more = status.counts.get(ElementState.FAILED, 0) - len(status.first_failed)
    if status.first_failed and more > 0:
        lines.append(f"and {more} more failed elements: torchx sweep results {status.handle}")
    return "\n".join(lines)


def status_data(status: SweepStatus) -> dict[str, Any]:
    """Return the status of a sweep as data for JSON."""
    return {
        "handle": status.handle,
        "component": status.component,
        "scheduler": status.scheduler,
        "state": status.state.name,
        "counts": {state.value: status.counts.get(state, 0) for state in ElementState},
        "note": status.note or None,
        "first_failed": [element_data(element) for element in status.first_failed],
    }


def element_data(
    element: ElementRecord, metrics: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an element as data for JSON.

    Args:
        element: The element.
        metrics: The values that the element recorded in trackers; None leaves out the key
            ``metrics``.
    """
    data = {
        "element": element.number,
        "parameters": json_data(element.parameters),
        "state": element.state.value,
        "attempt": element.attempt,
        "handle": element.handle or None,
        "reason": element.reason or None,
        "submitted": _time(element.submitted),
        "started": _time(element.started),
        "ended": _time(element.ended),
        "duration": _duration(element),
    }
    return data if metrics is None else {**data, "metrics": json_data(dict(metrics))}


def json_data(value: Any) -> Any:
    """Return data for JSON: a number that is not finite becomes ``NaN`` or ``Infinity`` as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return shown_value(value)
    if isinstance(value, Mapping):
        return {name: json_data(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_data(item) for item in value]
    return value


def element_values(
    elements: Sequence[ElementRecord], metrics: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the parameters, the metrics and the duration of each element, for a plot."""
    return [
        {**element.parameters, "duration": _duration(element), **metrics.get(element.number, {})}
        for element in elements
    ]


def reserved_columns(elements: Sequence[ElementRecord]) -> list[str]:
    """Return the names of all columns that contain no metrics."""
    return [*_parameter_names(elements), "element", *_COLUMNS, *_LAST_COLUMNS]


def element_rows(
    elements: Sequence[ElementRecord], metrics: Mapping[int, Mapping[str, Any]] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows of a table of elements.

    The table has a column for each parameter and for each metric.

    Args:
        elements: The elements.
        metrics: The values that elements recorded in trackers, by number of the element and name
            of the value; None means no columns of metrics.
    """
    names = _parameter_names(elements)
    found = metrics or {}
    recorded = list(dict.fromkeys(name for values in found.values() for name in values))
    headers = ["element", *names, *_COLUMNS, *recorded, *_LAST_COLUMNS]
    rows = []
    for element in elements:
        seconds = _duration(element)
        rows.append(
            [
                str(element.number),
                *(
                    shown_parameter(n, element.parameters[n]) if n in element.parameters else ""
                    for n in names
                ),
                element.state.value,
                "" if seconds is None else f"{seconds:.3f}",
                *_cells(found.get(element.number, {}), recorded),
                str(element.attempt),
                element.handle,
                element.reason,
            ]
        )
    return headers, rows


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


def _cell(text: str) -> str:
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _parameter_names(elements: Sequence[ElementRecord]) -> list[str]:
    return list(dict.fromkeys(name for element in elements for name in element.parameters))


def _cells(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [shown_value(values[name]) if name in values else "" for name in names]


def _parameters(element: ElementRecord) -> str:
    return ", ".join(
        f"{name}={shortened_parameter(name, value)}" for name, value in element.parameters.items()
    )


def _duration(element: ElementRecord) -> float | None:
    """Return the seconds from the start of the app to its end; None if the end is unknown.

    If the start is unknown, they begin with the submission.
    """
    started = element.submitted if element.started is None else element.started
    if started is None or element.ended is None:
        return None
    # The clock may have been set back meanwhile.
    return max(0.0, round(element.ended - started, 3))


def _time(seconds: float | None) -> str | None:
    when = moment(seconds)
    return None if when is None else when.isoformat(timespec="milliseconds")
