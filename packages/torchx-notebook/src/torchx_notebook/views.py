"""Jobs and sweeps as rich output of a cell: status, replicas and last lines; elements as a table.

All texts are escaped: a log or a name cannot add markup to the notebook.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from html import escape
from typing import TYPE_CHECKING, Any

from torchx_cli.output.ranking import number_of
from torchx_notebook.plots import parallel_coordinates
from torchx_specs.errors import TorchXError, UnknownAppException, one_line
from torchx_specs.redaction import masked_text, masked_value

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

#: The time between two updates of a live output, in seconds.
INTERVAL = 1.0
# How many lines of logs, replicas and elements are shown.
_LINES = 12
_LONGEST = 300
_ROWS = 50
_COLORS = {"SUCCEEDED": "#1a6d33", "FAILED": "#b3261e", "RUNNING": "#1d4fb8"}
_LOSSES, _SCORES = ("loss", "error"), ("acc", "score", "reward")
_CELL = "text-align:left;padding:2px 12px 2px 0"


class JobOutput:
    """The state of a job at one time, as HTML and as text.

    Args:
        handle: The job.
        status: Its status.
        lines: The last lines of its logs.
    """

    def __init__(self, handle: str, status: AppStatus, lines: Sequence[str]) -> None:
        self.handle = handle
        self.status = status
        self.lines = list(lines)

    def __repr__(self) -> str:
        return "\n".join([f"{self.handle}: {self.status.state.name}", *self.lines])

    def _repr_html_(self) -> str:
        replicas = [
            (f"{role.role}/{r.id}", r.state.name, r.node, r.exit_code, masked_text(r.reason))
            for role in self.status.roles
            for r in role.replicas
        ]
        table = _table(("replica", "state", "node", "exit code", "reason"), replicas)
        log = escape("\n".join(self.lines))
        return f"{_title(self.handle, self.status.state.name)}{table}" + (
            f"<pre style='white-space:pre-wrap'>{log}</pre>" if log else ""
        )


class SweepOutput:
    """The state of a sweep at one time, as HTML and as text.

    Args:
        status: The sweep's status, as ``torchx_sweep.status`` returns it.
        elements: Its elements, as ``torchx_sweep.results`` returns them.
        metrics: What the elements have recorded, as ``torchx_sweep.metrics`` returns it.
    """

    def __init__(
        self,
        status: Any,
        elements: Sequence[Any],
        metrics: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        self.status = status
        self.elements = list(elements)
        self.metrics = metrics or {}

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {state.value}" for state, n in self.status.counts.items())
        return f"{self.status.handle}: {self.status.state.name}\n{counts}"

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for e in self.elements for name in e.parameters))
        values = [
            {
                **{name: masked_value(name, value) for name, value in e.parameters.items()},
                **{n: masked_value(n, v) for n, v in self.metrics.get(e.number, {}).items()},
                "duration": _duration(e),
            }
            for e in self.elements
        ]
        numbers = [
            name
            for name in dict.fromkeys(name for row in values for name in row)
            if name not in names
            # A tracker often records the parameters, too, as TRACKER.NAME.
            and not name.endswith(tuple(f".{parameter}" for parameter in names))
            and any(number_of(row.get(name)) is not None for row in values)
        ]
        metric = _metric(numbers)
        best = _best(self.elements, [number_of(row.get(metric)) for row in values], metric)
        rows = [
            (
                f"{e.number} ★" if index == best else e.number,
                *(row.get(name) for name in names),
                e.state.value,
                *(_shown(name, row.get(name)) for name in numbers),
                e.reason,
            )
            for index, (e, row) in enumerate(zip(self.elements, values, strict=True))
        ]
        counts = ", ".join(f"{n} {state.value.lower()}" for state, n in self.status.counts.items())
        table = _table(("element", *names, "state", *numbers, "reason"), rows)
        title = _title(self.status.handle, self.status.state.name)
        plot = parallel_coordinates(values, [*names, metric], best)
        return f"{title}<p>{escape(counts)}</p>{plot}{table}"


def show(
    handle: str,
    *,
    follow: bool = True,
    runner: Runner | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> JobOutput | SweepOutput:
    """Show a job or a sweep below a cell, and return what was shown last.

    Args:
        handle: The job or sweep.
        follow: Whether to update the output until the job or sweep has ended.
        runner: Queries the job; None means the result of ``get_runner()``.
        sleep: Waits a number of seconds.

    Raises:
        UnknownAppException: The job or sweep does not exist.
        RequestError: ``torchx-sweep`` is not installed, and the handle is that of a sweep.
    """
    import IPython.display

    from torchx_runner import get_runner

    display: Any = IPython.display.display
    with get_runner() if runner is None else nullcontext(runner) as used:
        shown, unfinished = look(used, handle)
        output = display(shown, display_id=True)
        while follow and unfinished:
            sleep(INTERVAL)
            shown, unfinished = look(used, handle)
            if output is not None:  # there is no output outside of IPython
                output.update(shown)
    return shown


def look(runner: Runner, handle: str) -> tuple[JobOutput | SweepOutput, bool]:
    """Return the output for a handle, and whether the job or sweep has not ended."""
    if handle.startswith("sweep://"):
        from torchx_runner.api import sweep_module

        module = sweep_module()
        found = module.status(handle)
        elements = module.results(handle)
        return SweepOutput(found, elements, module.metrics(elements)), found.is_unfinished
    status = runner.status(handle)
    if status is None:
        raise UnknownAppException(handle)
    return JobOutput(handle, status, _last_lines(runner, handle, status)), not status.is_terminal()


def _last_lines(runner: Runner, handle: str, status: AppStatus) -> list[str]:
    replicas = [(role.role, replica.id) for role in status.roles for replica in role.replicas]
    found: list[str] = []
    try:
        for (role, k), block in runner.log_blocks(handle, replicas[:_ROWS], last=_LINES):
            if isinstance(block, Exception):
                continue
            for line in block:
                text = line.rstrip("\n").rpartition("\r")[2][:_LONGEST]
                found.append(text if len(replicas) == 1 else f"{role}/{k} {text}")
    except TorchXError as e:  # the scheduler has no logs
        return [one_line(e)]
    return found[-_LINES:]


def _duration(element: Any) -> float | None:
    """Return the seconds from the start of an element to its end; None if the end is unknown."""
    began = element.submitted if element.started is None else element.started
    if began is None or element.ended is None:
        return None
    return max(0.0, round(float(element.ended - began), 1))


def _metric(names: Sequence[str]) -> str:
    """Return the metric whose best element is marked: a loss, a score, or the first number."""
    for words in (_LOSSES, _SCORES):
        for name in names:
            if any(word in name.lower() for word in words):
                return name
    return names[0] if names else "duration"


def _best(elements: Sequence[Any], values: Sequence[float | None], metric: str) -> int | None:
    """Return the index of the best element that has succeeded; None if there is none."""
    sign = -1.0 if any(word in metric.lower() for word in _SCORES) else 1.0
    found = [
        (sign * value, index)
        for index, (element, value) in enumerate(zip(elements, values, strict=True))
        if value is not None and element.state.value == "SUCCEEDED"
    ]
    return min(found)[1] if found else None


def _shown(name: str, value: object) -> object:
    unit = " s" if name == "duration" else ""
    return f"{value:.4g}{unit}" if isinstance(value, float) else value


def _title(handle: str, state: str) -> str:
    color = _COLORS.get(state, "inherit")
    return f"<p><code>{escape(handle)}</code> <b style='color:{color}'>{escape(state)}</b></p>"


def _table(names: Iterable[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th style='{_CELL}'>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td style='{_CELL}'>{_text(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[:_ROWS]
    )
    more = f"<p>and {len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    return "" if value is None else escape(str(value)[:_LONGEST])
