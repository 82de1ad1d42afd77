"""The command ``torchx list``."""

from __future__ import annotations

import logging

import click

from torchx_cli.arguments.options import Command, cfg_option, duration_option, output_option
from torchx_cli.output.printing import TABLE, Column, fits_terminal, rfc3339, state_name, write_rows
from torchx_cli.selection import ListedApp, Selection, selection_options
from torchx_runner.submissions.all_schedulers import DEFAULT_TIMEOUT
from torchx_runner.submissions.journal import numbers_of

logger = logging.getLogger(__name__)

_DEFAULT_LIMIT = 20
# How long to wait for the other schedulers after the first answer, in seconds.
_PATIENCE = 1.0

# A row is a pair of a number, or None, and an app.
# On a terminal that is narrower than the table, names are cut, and short names replace handles.
_NAME = Column("name", lambda row: row[1].name, "APP NAME")
_SHORT_NAME = _NAME._replace(text=lambda row: _cut(row[1].name, 18))
_HANDLE = Column("handle", lambda row: row[1].app.app_handle, "APP HANDLE")
_SCHEDULER = Column("scheduler", lambda row: row[1].scheduler, "SCHEDULER")
_COLUMNS = (
    Column("number", lambda row: row[0], "APP", lambda row: _short_name(*row)),
    Column("app_id", lambda row: row[1].app.app_id),
    _NAME,
    Column("state", lambda row: state_name(row[1].app.state), "APP STATUS"),
    Column("submitted", lambda row: rfc3339(row[1].submitted), "AGE", lambda row: row[1].age),
    Column(
        "started", lambda row: rfc3339(row[1].app.started), "DURATION", lambda row: row[1].duration
    ),
    Column("ended", lambda row: rfc3339(row[1].app.ended)),
    Column("exit_code", lambda row: row[1].app.exit_code, "EXIT"),
)


@click.command("list", cls=Command)
@selection_options("List")
@cfg_option
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"List at most N apps.  [default: {_DEFAULT_LIMIT} in a table, all in JSON and YAML]",
)
@click.option("--all", "show_all", is_flag=True, help="List all apps.")
@duration_option(
    "--timeout",
    help="Wait this long for all schedulers.  [default: 1s after the first answer, at most"
    f" {DEFAULT_TIMEOUT:g}s]",
)
@output_option
def command(
    selection: Selection,
    scheduler_args: tuple[str, ...],
    limit: int | None,
    show_all: bool,
    timeout: float | None,
    output_format: str,
) -> None:
    """List the apps of a scheduler, or of all schedulers that you use, the newest first.

    The first column is a short name of the app, which every command accepts. Without -s, the
    schedulers of your submissions and of .torchxconfig are queried at the same time; all installed
    ones if you have used none. If some of them fail or do not answer, the apps of the others are
    listed, with a warning for each failure. If all schedulers fail, the exit code is the highest
    one of their errors, such as 3 if a scheduler did not answer.
    """
    short = limit is None and not show_all and output_format == TABLE
    apps = selection.apps(
        scheduler_args,
        _DEFAULT_LIMIT + 1 if short else None if show_all else limit,
        DEFAULT_TIMEOUT if timeout is None else timeout,
        _PATIENCE if timeout is None else None,
    )
    shown = apps[:_DEFAULT_LIMIT] if short else apps
    numbers = numbers_of(app.submission.handle for app in shown if app.submission)
    rows = [(numbers.get(app.submission.handle) if app.submission else None, app) for app in shown]
    columns: tuple[Column, ...] = (*_COLUMNS, _HANDLE)
    if output_format != TABLE:
        columns = (*columns, _SCHEDULER)
    elif not fits_terminal(columns, rows):
        columns = (*(_SHORT_NAME if one is _NAME else one for one in _COLUMNS), _SCHEDULER)
    write_rows(columns, rows, output_format)
    if len(apps) > len(shown):
        logger.info("these are the newest %d; --all lists the others, too", len(shown))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _short_name(number: int | None, app: ListedApp) -> str:
    return app.app.app_id if number is None else f"@{number}"
