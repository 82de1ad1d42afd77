"""The command ``torchx compare``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import handles_argument, output_option_of
from torchx_cli.output.comparison import ComparedRun, Subject, compared, differing
from torchx_cli.output.printing import JSON, TABLE, json_data, write_data, write_table
from torchx_cli.output.table_texts import csv_text, markdown_text
from torchx_cli.runner_context import open_runner
from torchx_kit.trackers.recorded import Metric
from torchx_runner.default_tracker import readable_trackers
from torchx_runner.submissions.journal import submissions
from torchx_specs.errors import one_line

F = TypeVar("F", bound=Callable[..., Any])

_CSV, _MARKDOWN = "csv", "markdown"


def comparison_options(function: F) -> F:
    """Add the options that :func:`write_comparison` needs."""
    options = (
        output_option_of(TABLE, _CSV, _MARKDOWN, JSON),
        click.option(
            "--all", "show_all", is_flag=True, help="Show what all apps have in common, too."
        ),
        click.option(
            "--metrics/--no-metrics",
            "with_metrics",
            default=True,
            help="Show what the apps have recorded in the configured trackers.  [default:"
            " --metrics]",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("compare", cls=Command)
@comparison_options
@handles_argument
def command(
    app_handles: tuple[str, ...], show_all: bool, with_metrics: bool, output_format: str
) -> None:
    """Show what differs between apps, how they ended, and what they recorded.

    HANDLE may be a sweep, for all of its elements. The table has a row for each app, and a column
    for each argument, variable or other field of the definition that differs. Of a metric with
    several values it shows the last, smallest and largest one, and their number. Definitions come
    from the journal of this machine.
    """
    write_comparison(app_subjects(app_handles), show_all, with_metrics, output_format)


def app_subjects(handles: Iterable[str]) -> list[Subject]:
    """Return apps to compare, with their entries in the journal."""
    wanted = dict.fromkeys(handles)
    entries = {one.handle: one for one in submissions() if one.handle in wanted}
    return [Subject(handle, entries.get(handle)) for handle in wanted]


def write_comparison(
    subjects: Sequence[Subject], show_all: bool, with_metrics: bool, output_format: str
) -> None:
    """Write what differs between apps.

    Args:
        subjects: The apps.
        show_all: Whether to show what all apps have in common, too.
        with_metrics: Whether to show what the apps have recorded in trackers.
        output_format: ``table``, ``csv``, ``markdown`` or ``json``.
    """
    trackers = readable_trackers() if with_metrics else {}
    with open_runner() as runner:
        runs = compared(runner, subjects, trackers)
    names = list(dict.fromkeys(n for run in runs for n in run.fields))
    shown = names if show_all else differing(runs)
    if output_format == JSON:
        write_data(json_data([_data(run, shown) for run in runs]), JSON)
        return
    headers, rows = _table(runs, shown)
    if output_format == TABLE:
        write_table(headers, [list(map(one_line, row)) for row in rows])
    else:
        sys.stdout.write((csv_text if output_format == _CSV else markdown_text)(headers, rows))


def _data(run: ComparedRun, names: Sequence[str]) -> dict[str, Any]:
    return {
        "handle": run.handle,
        "state": run.state,
        "duration": run.duration,
        "fields": {n: run.shown[n] for n in names if n in run.shown},
        "metrics": {
            name: {
                "last": metric.last,
                "min": metric.least,
                "max": metric.largest,
                "count": metric.number,
            }
            for name, metric in run.metrics.items()
        },
    }


def _table(runs: Sequence[ComparedRun], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    metrics = dict.fromkeys(name for run in runs for name in run.metrics)
    series = {name for run in runs for name, metric in run.metrics.items() if metric.number > 1}
    headers = ["handle", "state", "duration", *names]
    for name in metrics:
        headers += [name, f"{name} min", f"{name} max", f"{name} n"] if name in series else [name]
    rows = []
    for run in runs:
        cells = [run.handle, run.state or "UNKNOWN", run.duration]
        cells += [run.shown.get(name) for name in names]
        for name in metrics:
            found = run.metrics.get(name, Metric(None, number=0))
            cells += found if name in series else [found.last]
        rows.append([_text(cell) for cell in cells])
    return headers, rows


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
