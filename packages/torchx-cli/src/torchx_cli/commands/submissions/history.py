"""The command ``torchx history``."""

from __future__ import annotations

import logging
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import any_scheduler_option, output_option
from torchx_cli.output.printing import TABLE, write_data, write_table
from torchx_cli.output.times import format_time, rfc3339, when_option
from torchx_runner.submissions.journal import Submission, missing_submissions, submissions
from torchx_specs.errors import one_line

logger = logging.getLogger(__name__)

_DEFAULT_LIMIT = 20


@click.command("history", cls=Command)
@any_scheduler_option("Show only submissions to this scheduler.  [default: all]")
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
@output_option
def command(
    scheduler: str | None,
    name: str | None,
    since: datetime | None,
    limit: int,
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
    if output_format == TABLE:
        headers = ["NUMBER", "APP HANDLE", "APP NAME", "SUBMITTED", "COMMIT", "COMMAND"]
        write_table(headers, [_cells(number, submission) for number, submission in found])
    else:
        write_data([_data(number, submission) for number, submission in found], output_format)


def _cells(number: int, submission: Submission) -> list[str]:
    import shlex

    return [
        f"@{number}",
        one_line(submission.handle),
        one_line(submission.name),
        format_time(submission.time),
        (submission.git_commit or "")[:10],
        one_line(shlex.join(submission.command)),
    ]


def _data(number: int, submission: Submission) -> dict[str, Any]:
    return {
        "number": number,
        "handle": submission.handle,
        "app_id": submission.app_id,
        "name": submission.name,
        "scheduler": submission.scheduler,
        "submitted": rfc3339(submission.time),
        "command": list(submission.command),
        "folder": submission.folder or None,
        "workspace": submission.workspace,
        "workspace_digest": submission.workspace_digest,
        "git_commit": submission.git_commit,
    }
