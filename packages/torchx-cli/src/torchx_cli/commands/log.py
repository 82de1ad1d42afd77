"""The command ``torchx log``."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from torchx_cli.arguments.command import Command
from torchx_cli.logs.reader import LogOptions, LogReader
from torchx_cli.logs.replicas import select_replicas
from torchx_cli.output.colors import takes_color
from torchx_cli.output.times import when_option
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import RequestError
from torchx_specs.schedulers import Stream, compile_regex


def _checked_regex(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            compile_regex(value)
        except RequestError as e:
            raise click.BadParameter(str(e), ctx, param) from e
    return value


@click.command("log", cls=Command)
@click.option(
    "--regex",
    metavar="REGEX",
    callback=_checked_regex,
    help="Show only lines in which this regular expression is found.",
)
@click.option("-t", "--tail", is_flag=True, help="Follow the logs until the app has ended.")
@click.option(
    "--streams",
    type=click.Choice(["stdout", "stderr", "combined"]),
    help="Show this output.  [default: the scheduler's default]",
)
@when_option("--since", help="Show lines since this time: 10m (ten minutes ago) or ISO 8601.")
@when_option("--until", help="Show lines before this time.")
@click.option(
    "-n",
    "--lines",
    "last",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only the last N lines of each replica.",
)
@click.argument("identifier", metavar="HANDLE[/ROLE[/REPLICAS]]")
def command(
    identifier: str,
    regex: str | None,
    tail: bool,
    streams: str | None,
    since: datetime | None,
    until: datetime | None,
    last: int | None,
) -> None:
    """Show the logs of an app's replicas, each line after ROLE/REPLICA.

    \b
    torchx log local_cwd://torchx/train-x1              all replicas
    torchx log local_cwd://torchx/train-x1/trainer      the replicas of one role
    torchx log local_cwd://torchx/train-x1/trainer/0,2-4
    """
    options = LogOptions(
        regex=regex,
        since=since,
        until=until,
        tail=tail,
        streams=None if streams is None else Stream(streams),
        last=last,
        partial=tail,
    )
    with open_runner() as runner:
        app_handle, replicas = select_replicas(runner, identifier)
        reader = LogReader(
            runner.log_blocks, app_handle, replicas, options, sys.stdout, takes_color(sys.stdout)
        )
        reader.read_all()
