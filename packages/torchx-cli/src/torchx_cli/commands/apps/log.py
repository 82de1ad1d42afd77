"""The command ``torchx log``."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.handles import resolve_identifier
from torchx_cli.arguments.options import Command, when_option
from torchx_cli.completion.values import complete_apps
from torchx_cli.logs.copies import log_copies, required_copies
from torchx_cli.logs.reader import LogReader
from torchx_cli.logs.replicas import (
    LogSource,
    parse_identifier,
    replicas_now,
    selected_replicas,
    started_replicas,
)
from torchx_cli.output.colors import takes_color
from torchx_cli.runner_context import log_blocks_of, open_runner
from torchx_kit.logs.lines import compile_regex
from torchx_specs.errors import RequestError, UnknownAppException
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.logs import LogQuery

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.plugins.factories import LogCopy

logger = logging.getLogger(__name__)


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
@click.option(
    "-f",
    "--follow",
    "-t",
    "--tail",
    "follow",
    is_flag=True,
    help="Wait until the app starts, and follow the logs until it has ended.",
)
@click.option("--stdout", is_flag=True, help="Show standard output only.")
@click.option("--stderr", is_flag=True, help="Show standard error only.")
@click.option(
    "--streams",
    type=click.Choice(["stdout", "stderr", "combined"]),
    help="Show this output of the replicas.  [default: the scheduler's default]",
)
@click.option("--failed", is_flag=True, help="Show only the replicas that have failed.")
@when_option("--since", help="Show lines since this time: 10m (ten minutes ago) or RFC 3339.")
@when_option("--until", help="Show lines before this time.")
@click.option(
    "-n",
    "--lines",
    "last",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only the last N lines of each replica.",
)
@click.option(
    "--save",
    is_flag=True,
    help="Save the logs in the sinks [log_sink:NAME] instead of showing them; with -f until the app"
    " has ended.",
)
@click.option(
    "--saved",
    is_flag=True,
    help="Show the copy in the sinks [log_sink:NAME].  [default: if the app no longer exists]",
)
@click.argument("identifier", metavar="HANDLE[/ROLE[/REPLICAS]]", shell_complete=complete_apps)
def command(
    identifier: str,
    regex: str | None,
    follow: bool,
    stdout: bool,
    stderr: bool,
    streams: str | None,
    failed: bool,
    since: datetime | None,
    until: datetime | None,
    last: int | None,
    save: bool,
    saved: bool,
) -> None:
    """Show the logs of an app's replicas, each line after ROLE/REPLICA.

    \b
    torchx log local_cwd://torchx/train-x1              all replicas
    torchx log local_cwd://torchx/train-x1/trainer      the replicas of one role
    torchx log local_cwd://torchx/train-x1/trainer/0,2-4
    torchx log @1/trainer/0                            of the last submission
    """
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until, so no line can be shown")
    query = LogQuery(
        regex=regex,
        since=since,
        until=until,
        should_tail=follow,
        streams=_stream(stdout, stderr, streams),
        last=last,
        partial=follow,
    )
    source = parse_identifier(resolve_identifier(identifier))
    if save:
        _save(source, query, failed or saved)
        return
    with open_runner() as runner:
        log_blocks = log_blocks_of(runner)
        try:
            replicas = [] if saved else _replicas(runner, source, follow, failed)
        except UnknownAppException:
            copies = log_copies()
            copy = None if copies is None else copies.find(source.app_handle)
            if copy is None:
                raise
            logger.info("%s no longer exists", source.app_handle)
        else:
            copy = _required_copy(source) if saved else None
        if copy is not None:
            log_blocks, replicas = copy.log_blocks, _replicas_of_copy(copy, source, failed)
            is_whole = "" if copy.is_complete else "; this copy may lack lines"
            logger.info("these are the logs in %s%s", copy, is_whole)
        if replicas:
            LogReader(
                log_blocks, source.app_handle, query, sys.stdout, takes_color(sys.stdout)
            ).read_all(replicas)


def _save(source: LogSource, query: LogQuery, selects_more: bool) -> None:
    shown = query._replace(should_tail=False, partial=False)
    if source.role is not None or selects_more or shown != LogQuery():
        raise click.UsageError("--save saves all logs of an app; only -f can be combined with it")
    copies, follow = required_copies(), query.should_tail
    with open_runner() as runner:
        replicas = started_replicas(runner, source) if follow else replicas_now(runner, source)
        if replicas:
            copies.save(runner, source.app_handle, replicas, follow)
        else:
            logger.info("%s has not started, so it has no logs to save", source.app_handle)


def _required_copy(source: LogSource) -> LogCopy:
    copies = required_copies()
    copy = copies.find(source.app_handle)
    if copy is None:
        sinks = ", ".join(map(str, copies.sinks))
        raise RequestError(f"no sink [log_sink:NAME] has a copy of {source.app_handle}: {sinks}")
    return copy


def _replicas_of_copy(copy: LogCopy, source: LogSource, only_failed: bool) -> list[tuple[str, int]]:
    """Return the replicas that a log identifier selects in the copy of an app's logs.

    Raises:
        RequestError: The copy has no such role or replica, or ``only_failed`` is requested for an
            app whose end is not in the copy.
    """
    replicas = selected_replicas(copy.app, source)
    if not only_failed:
        return replicas
    if not copy.is_complete:
        raise RequestError("--failed: the copy was made before the app ended; omit the option")
    return [replica for replica in replicas if replica in copy.failed]


def _stream(stdout: bool, stderr: bool, streams: str | None) -> Stream | None:
    """Return the stream that the options select; None means the scheduler's default."""
    flags = [name for name, given in (("stdout", stdout), ("stderr", stderr)) if given]
    if streams is not None and flags and flags != [streams]:
        raise click.UsageError(f"--{flags[0]} and --streams {streams} contradict each other")
    if len(flags) == 2:
        return Stream.COMBINED
    name = flags[0] if flags else streams
    return None if name is None else Stream(name)


def _replicas(
    runner: Runner, source: LogSource, follow: bool, only_failed: bool
) -> list[tuple[str, int]]:
    """Return the replicas to show; if there are none, log the reason."""
    if follow and not only_failed:
        return started_replicas(runner, source)
    replicas = replicas_now(runner, source, only_failed=only_failed)
    if replicas is None:
        logger.info(
            "%s has not started, so it has no logs; 'torchx log -f' waits for them",
            source.app_handle,
        )
    elif not replicas:
        logger.info("no replica of %s has failed", source.app_handle)
    return replicas or []
