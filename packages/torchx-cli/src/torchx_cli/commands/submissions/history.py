"""The command ``torchx history``."""

from __future__ import annotations

import logging
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from shlex import join

import click

from torchx_cli.arguments.options import (
    Command,
    output_option,
    scheduler_option,
    split_names,
    when_option,
)
from torchx_cli.output import ranking
from torchx_cli.output.printing import Column, format_time, json_data, rfc3339, write_rows
from torchx_kit.trackers.recorded import recorded
from torchx_runner.default_tracker import readable_trackers
from torchx_runner.submissions.journal import missing_submissions, submissions

logger = logging.getLogger(__name__)

_DEFAULT_LIMIT = 20
# A row is a pair of a number and a submission.
_COLUMNS = (
    Column("number", lambda row: row[0], "NUMBER", lambda row: f"@{row[0]}"),
    Column("handle", lambda row: row[1].handle, "APP HANDLE"),
    Column("app_id", lambda row: row[1].app_id),
    Column("name", lambda row: row[1].name, "APP NAME"),
    Column("scheduler", lambda row: row[1].scheduler),
    Column(
        "submitted",
        lambda row: rfc3339(row[1].time),
        "SUBMITTED",
        lambda row: format_time(row[1].time),
    ),
    Column(
        "git_commit",
        lambda row: row[1].git_commit,
        "COMMIT",
        lambda row: (row[1].git_commit or "")[:10],
    ),
    Column(
        "command", lambda row: list(row[1].command), "COMMAND", lambda row: join(row[1].command)
    ),
    Column("folder", lambda row: row[1].folder or None),
    Column("workspace", lambda row: row[1].workspace),
    Column("workspace_digest", lambda row: row[1].workspace_digest),
)


@click.command("history", cls=Command)
@scheduler_option("Show only submissions to this scheduler.  [default: all]")
@click.option(
    "--name", metavar="PATTERN", help="Show only apps whose name matches, such as 'train-*'."
)
@when_option(
    "--since",
    help="Show only submissions since this time, such as 2h (two hours ago) or"
    " 2030-01-31T12:00:00Z.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=_DEFAULT_LIMIT,
    metavar="N",
    help=f"Show at most N submissions.  [default: {_DEFAULT_LIMIT}]",
)
@click.option(
    "--metrics",
    metavar="NAME,...",
    multiple=True,
    callback=split_names,
    help="Show the last values of these metrics, which the apps have recorded in the configured"
    " trackers.",
)
@click.option(
    "--sort",
    metavar="NAME[:ORDER]",
    help="Sort the submissions by this metric; ORDER is asc or desc.  [default: the newest first]",
)
@output_option
def command(
    scheduler: str | None,
    name: str | None,
    since: datetime | None,
    limit: int,
    metrics: tuple[str, ...],
    sort: str | None,
    output_format: str,
) -> None:
    """Show what you submitted from this machine, the newest first.

    The first column is a short name of the app, which every command accepts. No scheduler is
    queried: 'torchx list --mine' shows states. TORCHX_JOURNAL=0 turns the journal off.
    """
    after = None if since is None else since.astimezone()
    matching = (
        (number, submission)
        for number, submission in enumerate(submissions(), 1)
        if (scheduler is None or submission.scheduler == scheduler)
        and (name is None or fnmatchcase(submission.name, name))
        and (after is None or submission.time >= after)
    )
    found = list(islice(matching, limit))
    if len(found) < limit and (missing := missing_submissions()):
        logger.info("%s", missing)
    sort_name, descending = ranking.split_order(sort or "", ("asc", "desc"))
    names = dict.fromkeys((*metrics, *([sort_name] if sort else ())))
    if not names:
        write_rows(_COLUMNS, found, output_format)
        return
    handles = [submission.handle for _, submission in found]
    values = [
        {name: json_data(metric.last) for name, metric in one.items()}
        for one in recorded(handles, readable_trackers())
    ]
    rows = [(*row, own) for row, own in zip(found, values, strict=True)]
    if sort:
        ranking.check_column("--sort", sort_name, values)
        rows = ranking.ranked(rows, values, sort_name, descending=descending)
    more = [_metric_column(name) for name in names]
    write_rows([*_COLUMNS[:5], *more, *_COLUMNS[5:]], rows, output_format)


def _metric_column(name: str) -> Column:
    return Column(name, lambda row: row[2].get(name), name)
