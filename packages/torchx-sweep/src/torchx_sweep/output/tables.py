"""The status and the elements of sweeps, as text, tables and data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from torchx_cli.commands.submissions.compare import Subject
from torchx_cli.output.printing import Column, json_data, rfc3339, row_data, table_cells
from torchx_kit.times import moment
from torchx_runner.submissions.journal import Submission
from torchx_sweep.elements import shortened_parameter, shown_parameter, shown_value
from torchx_sweep.store import ElementRecord, ElementState, SweepRecord

if TYPE_CHECKING:
    from torchx_sweep.api import SweepStatus


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
    return row_data(STATUS_COLUMNS, status)


def element_data(element: ElementRecord) -> dict[str, Any]:
    """Return an element as data for JSON."""
    return row_data((*_FIRST_COLUMNS, *_STATE_COLUMNS, *_LAST_COLUMNS), element)


def element_values(
    elements: Sequence[ElementRecord], metrics: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the parameters, the metrics and the duration of each element."""
    return [
        {
            **element.parameters,
            "duration": element_duration(element),
            **metrics.get(element.number, {}),
        }
        for element in elements
    ]


def reserved_columns(elements: Sequence[ElementRecord]) -> list[str]:
    """Return the names of all columns that contain no metrics."""
    columns = (*_FIRST_COLUMNS, *_STATE_COLUMNS, *_LAST_COLUMNS)
    return [*_parameter_names(elements), *(column.header for column in columns if column.header)]


def element_rows(
    elements: Sequence[ElementRecord], metrics: Mapping[int, Mapping[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows of a table of elements.

    The table has a column for each parameter and for each metric.

    Args:
        elements: The elements.
        metrics: The values that elements recorded in trackers, by number of the element and name
            of the value.
    """
    names = _parameter_names(elements)
    recorded = list(dict.fromkeys(name for values in metrics.values() for name in values))
    columns = (
        *_FIRST_COLUMNS,
        *(Column("", partial(_parameter, name), name) for name in names),
        *_STATE_COLUMNS,
        *(Column("", partial(_metric, metrics, name), name) for name in recorded),
        *_LAST_COLUMNS,
    )
    return table_cells(columns, elements)


def element_subject(
    sweep: SweepRecord, element: ElementRecord, arguments: Sequence[str]
) -> Subject:
    """Return an element as an app that ``torchx compare`` shows.

    Args:
        sweep: The sweep.
        element: The element, with its AppDef and a handle.
        arguments: The arguments that all elements share.
    """
    submission = Submission(
        element.handle,
        element.submission,
        datetime.fromtimestamp(element.submitted or sweep.created, timezone.utc),
        cfg=sweep.cfg,
        app=json.loads(element.app),
        component=sweep.component,
        arguments=tuple(arguments),
    )
    outcome = (element.state.value, element_duration(element))
    return Subject(element.handle, submission, element.parameters, outcome)


def _parameter_names(elements: Sequence[ElementRecord]) -> list[str]:
    return list(dict.fromkeys(name for element in elements for name in element.parameters))


def _parameter(name: str, element: ElementRecord) -> str:
    found = element.parameters
    return shown_parameter(name, found[name]) if name in found else ""


def _metric(metrics: Mapping[int, Mapping[str, Any]], name: str, element: ElementRecord) -> str:
    values = metrics.get(element.number, {})
    return shown_value(values[name]) if name in values else ""


def _parameters(element: ElementRecord) -> str:
    return ", ".join(
        f"{name}={shortened_parameter(name, value)}" for name, value in element.parameters.items()
    )


def element_duration(element: ElementRecord) -> float | None:
    """Return the seconds from the start of the app to its end; None if the end is unknown.

    If the start is unknown, they begin with the submission.
    """
    started = element.submitted if element.started is None else element.started
    if started is None or element.ended is None:
        return None
    # The clock may have been set back meanwhile.
    return max(0.0, round(element.ended - started, 3))


def _shown_duration(element: ElementRecord) -> str:
    seconds = element_duration(element)
    return "" if seconds is None else f"{seconds:.3f}"


#: The columns of a table of sweeps, and the fields of a sweep's status in JSON.
STATUS_COLUMNS = (
    Column("handle", lambda status: status.handle, "handle"),
    Column("", lambda status: status.state.name, "state"),
    Column("", lambda status: status.scheduler, "scheduler"),
    Column("component", lambda status: status.component, "component"),
    Column("scheduler", lambda status: status.scheduler),
    Column("state", lambda status: status.state.name),
    Column("", lambda status: sum(status.counts.values()), "elements"),
    Column("counts", lambda status: {s.value: status.counts.get(s, 0) for s in ElementState}),
    Column("note", lambda status: status.note or None),
    Column("first_failed", lambda status: [element_data(e) for e in status.first_failed]),
)
# The columns of a table of elements, and the fields of an element in JSON. Columns of parameters
# come after the first columns, columns of metrics before the last ones.
_FIRST_COLUMNS = (
    Column("element", lambda element: element.number, "element"),
    Column("parameters", lambda element: json_data(element.parameters)),
)
_STATE_COLUMNS = (
    Column("state", lambda element: element.state.value, "state"),
    Column("", element_duration, "duration", _shown_duration),
)
_LAST_COLUMNS = (
    Column("attempt", lambda element: element.attempt, "attempt"),
    Column("handle", lambda element: element.handle or None, "handle"),
    Column("reason", lambda element: element.reason or None, "reason"),
    Column("submitted", lambda element: rfc3339(moment(element.submitted))),
    Column("started", lambda element: rfc3339(moment(element.started))),
    Column("ended", lambda element: rfc3339(moment(element.ended))),
    Column("duration", element_duration),
)
