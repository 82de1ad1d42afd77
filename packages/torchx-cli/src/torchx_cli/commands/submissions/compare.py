"""The command ``torchx compare``: what differs between runs, their ends, and their metrics."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from torchx_cli.arguments.options import Command, handles_argument, output_option_of
from torchx_cli.output.printing import (
    JSON,
    TABLE,
    csv_text,
    json_data,
    markdown_text,
    write_data,
    write_table,
)
from torchx_cli.runner_context import open_runner
from torchx_kit.trackers.recorded import Metric, recorded
from torchx_runner.default_tracker import readable_trackers
from torchx_runner.submissions.changes import flattened, named_arguments
from torchx_runner.submissions.journal import Submission, submissions
from torchx_specs.errors import TorchXError, one_line
from torchx_specs.redaction import MASK, masked, masked_value

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_CSV, _MARKDOWN = "csv", "markdown"
# How many schedulers are queried at the same time.
_READERS = 16


class Subject(NamedTuple):
    """An app to compare.

    Attributes:
        handle: The app.
        submission: Its entry in the journal, or what is known of it otherwise; None if nothing is.
        parameters: The parameters of an element of a sweep, which stand for arguments.
        outcome: The state and the duration in seconds; None if the scheduler is to be queried.
    """

    handle: str
    submission: Submission | None
    parameters: Mapping[str, Any] = MappingProxyType({})
    outcome: tuple[str, float | None] | None = None


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
@handles_argument(required=True)
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


class _Field(NamedTuple):
    """A field of an app, such as an argument or a variable.

    Attributes:
        value: The value.
        shown: The value for the output, with secrets masked.
    """

    value: Any
    shown: Any


class _Run(NamedTuple):
    """One run in a comparison.

    Attributes:
        handle: The app.
        state: The state; None if the app is unknown to its scheduler.
        duration: The time from the start to the end, in seconds; None if one of them is unknown.
        fields: Arguments, environment, image and other fields, by name.
        metrics: What the run has recorded, by name.
    """

    handle: str
    state: str | None
    duration: float | None
    fields: dict[str, _Field]
    metrics: dict[str, Metric]


def write_comparison(
    subjects: Sequence[Subject], show_all: bool, with_metrics: bool, output_format: str
) -> None:
    """Write what differs between apps.

    A scheduler that does not answer, and a tracker that fails, are skipped with a warning.

    Args:
        subjects: The apps.
        show_all: Whether to show what all apps have in common, too.
        with_metrics: Whether to show what the apps have recorded in trackers.
        output_format: ``table``, ``csv``, ``markdown`` or ``json``.
    """
    trackers = readable_trackers() if with_metrics else {}
    with open_runner() as runner:
        outcomes = _outcomes(runner, subjects)
    metrics = recorded([subject.handle for subject in subjects], trackers, histories=True)
    by_call = _have_one_component(subjects)
    runs = [
        _Run(subject.handle, state, duration, _fields(subject, by_call), values)
        for subject, (state, duration), values in zip(subjects, outcomes, metrics, strict=True)
    ]
    names = list(dict.fromkeys(name for run in runs for name in run.fields))
    shown = names if show_all else [name for name in names if _differs(name, runs)]
    if output_format == JSON:
        write_data(json_data([_data(run, shown) for run in runs]), JSON)
        return
    headers, rows = _table(runs, shown)
    if output_format == TABLE:
        write_table(headers, [list(map(one_line, row)) for row in rows])
    else:
        sys.stdout.write((csv_text if output_format == _CSV else markdown_text)(headers, rows))


def _differs(name: str, runs: Iterable[_Run]) -> bool:
    """Return True if a field has not the same value in all runs."""
    first, *others = (run.fields[name].value if name in run.fields else None for run in runs)
    return any(value != first for value in others)


def _outcomes(runner: Runner, subjects: Sequence[Subject]) -> list[tuple[str | None, float | None]]:
    """Return the state and the duration of each app."""
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(lambda one: one.outcome or _outcome(runner, one.handle), subjects))


def _outcome(runner: Runner, handle: str) -> tuple[str | None, float | None]:
    try:
        status = runner.status(handle)
    except TorchXError as e:
        logger.warning("%s: its state is unknown: %s", handle, one_line(e))
        status = None
    return None if status is None else status.state.name, _duration(status)


def _duration(status: AppStatus | None) -> float | None:
    if status is None or status.started is None or status.ended is None:
        return None
    return max(0.0, round((status.ended - status.started).total_seconds(), 3))


def _have_one_component(subjects: Iterable[Subject]) -> bool:
    """Return True if one component made all known apps: its arguments stand for the roles'."""
    components = {one.submission.component for one in subjects if one.submission is not None}
    return len(components) == 1 and "" not in components


def _fields(subject: Subject, by_call: bool) -> dict[str, _Field]:
    """Return the fields of an app; those of an unknown app are its parameters only."""
    submission = subject.submission
    fields: dict[str, _Field] = {}

    def add(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            fields[name] = _Field(value, masked_value(name.rpartition(".")[2], value))

    if submission is not None:
        app: Mapping[str, Any] = submission.app or {}
        roles = app.get("roles", ())
        if by_call:
            arguments = named_arguments(submission.arguments).items()
            add({name.lstrip("-"): value for name, value in arguments})
            roles = [{key: role[key] for key in role if key != "args"} for role in roles]
        for role in roles:
            prefix = "" if len(roles) == 1 else f"{role.get('name')}."
            # An item of a list may be a secret because of the item before it. A mapping may be
            # masked as a whole.
            shown = flattened(masked(role))
            for name, value in flattened(role).items():
                fields[f"{prefix}{name}"] = _Field(value, shown.get(name, MASK))
        add(flattened({"name": app.get("name"), "cfg": submission.cfg}))
        add({"scheduler": submission.scheduler, "commit": submission.git_commit})
        add({"code": submission.workspace_digest})
    add(subject.parameters)
    return fields


def _data(run: _Run, names: Sequence[str]) -> dict[str, Any]:
    return {
        "handle": run.handle,
        "state": run.state,
        "duration": run.duration,
        "fields": {name: run.fields[name].shown for name in names if name in run.fields},
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


def _table(runs: Sequence[_Run], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    metrics = dict.fromkeys(name for run in runs for name in run.metrics)
    series = {name for run in runs for name, metric in run.metrics.items() if metric.number > 1}
    headers = ["handle", "state", "duration", *names]
    for name in metrics:
        headers += [name, f"{name} min", f"{name} max", f"{name} n"] if name in series else [name]
    rows = []
    for run in runs:
        cells = [run.handle, run.state or "UNKNOWN", run.duration]
        cells += [run.fields[name].shown if name in run.fields else None for name in names]
        for name in metrics:
            found = run.metrics.get(name, Metric(None, number=0))
            cells += found if name in series else [found.last]
        rows.append([_text(cell) for cell in cells])
    return headers, rows


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
