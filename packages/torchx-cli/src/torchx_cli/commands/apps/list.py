"""The command ``torchx list``."""

from __future__ import annotations

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import cfg_option, output_option
from torchx_cli.output.printing import Column, state_name, write_rows
from torchx_cli.output.times import duration_option, rfc3339
from torchx_cli.selection import Selection, selection_options
from torchx_runner.submissions.all_schedulers import DEFAULT_TIMEOUT

_COLUMNS = (
    Column("handle", lambda row: row.app.app_handle, "APP HANDLE"),
    Column("app_id", lambda row: row.app.app_id),
    Column("name", lambda row: row.name, "APP NAME"),
    Column("state", lambda row: state_name(row.app.state), "APP STATUS"),
    Column("scheduler", lambda row: row.scheduler),
    Column("submitted", lambda row: rfc3339(row.submitted), "AGE", lambda row: row.age),
    Column("started", lambda row: rfc3339(row.app.started), "DURATION", lambda row: row.duration),
    Column("ended", lambda row: rfc3339(row.app.ended)),
    Column("exit_code", lambda row: row.app.exit_code, "EXIT"),
)


@click.command("list", cls=Command)
@selection_options("List", "all installed schedulers")
@cfg_option
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="List at most N apps.")
@duration_option(
    "--timeout",
    default=str(DEFAULT_TIMEOUT),
    help=f"Wait this long for each scheduler.  [default: {DEFAULT_TIMEOUT:g}s]",
)
@output_option
def command(
    selection: Selection,
    scheduler_args: tuple[str, ...],
    limit: int | None,
    timeout: float,
    output_format: str,
) -> None:
    """List the apps of a scheduler, or of all schedulers, the newest first.

    Without -s, all installed schedulers are queried at the same time. If some of them fail or do
    not answer, the apps of the others are listed, with a warning for each failure. Failing
    schedulers that you never used, and that have no section in .torchxconfig, share one line. If
    all schedulers fail, the exit code is the highest one of their errors, such as 3 if a scheduler
    did not answer.
    """
    write_rows(_COLUMNS, selection.apps(scheduler_args, limit, timeout), output_format)
