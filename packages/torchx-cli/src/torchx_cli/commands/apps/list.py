"""The command ``torchx list``."""

from __future__ import annotations

import functools
import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import any_scheduler_option, cfg_option, output_option
from torchx_cli.arguments.scheduler_choice import all_schedulers, choose_scheduler, read_cfg
from torchx_cli.completion.values import complete_states
from torchx_cli.exit_codes import GlobalOptions, fail, report_error
from torchx_cli.listing import log_errors
from torchx_cli.output.printing import Column, state_name, write_rows
from torchx_cli.output.times import duration_option, format_duration, rfc3339, when_option
from torchx_cli.runner_context import open_runner
from torchx_runner.submissions.all_schedulers import DEFAULT_TIMEOUT, list_all
from torchx_runner.submissions.journal import Submission, missing_submissions, submission_finder
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_specs.schedulers import ListAppResponse

logger = logging.getLogger(__name__)


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    names = [name.strip().upper() for value in values for name in value.split(",") if name.strip()]
    known = [state.name for state in AppState]
    for name in names:
        if name not in known:
            raise RequestError(
                f"--state: unknown state '{name}';{nearest(name, known)} states: {', '.join(known)}"
            )
    return frozenset(names)


@dataclass
class _Row:
    """One app of the list; the journal adds a name or a time that the scheduler does not report."""

    scheduler: str
    app: ListAppResponse
    find: Callable[[str], Submission | None]

    @functools.cached_property
    def submission(self) -> Submission | None:
        return self.find(self.app.app_handle)

    @property
    def name(self) -> str:
        return self.app.name or (self.submission.name if self.submission else "")

    @property
    def submitted(self) -> datetime | None:
        return self.app.submitted or (self.submission.time if self.submission else None)

    @property
    def began(self) -> datetime | None:
        return self.submitted or self.app.started

    @property
    def age(self) -> str:
        """How long ago the app began."""
        return "" if self.began is None else _seconds(self.began, datetime.now(timezone.utc))

    @property
    def duration(self) -> str:
        """How long the app has run."""
        end = self.app.ended
        if end is None and self.app.state == AppState.RUNNING:
            end = datetime.now(timezone.utc)
        return "" if self.app.started is None or end is None else _seconds(self.app.started, end)


def _seconds(start: datetime, end: datetime) -> str:
    return format_duration((end - start).total_seconds())


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
@any_scheduler_option("List the apps of this scheduler only.  [default: all installed schedulers]")
@cfg_option
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    shell_complete=complete_states,
    multiple=True,
    callback=_states,
    help="List only apps in one of these states, such as RUNNING or FAILED,CANCELLED.",
)
@click.option(
    "--name", metavar="PATTERN", help="List only apps whose name matches, such as 'train-*'."
)
@when_option(
    "--since",
    help="List only apps submitted since this time, such as 2h (two hours ago) or"
    " 2030-01-31T12:00:00Z.",
)
@click.option("--mine", is_flag=True, help="List only apps that you submitted from this machine.")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="List at most N apps.")
@duration_option(
    "--timeout",
    default=str(DEFAULT_TIMEOUT),
    help=f"Wait this long for each scheduler.  [default: {DEFAULT_TIMEOUT:g}s]",
)
@output_option
def command(
    scheduler: str | None,
    scheduler_args: tuple[str, ...],
    states: frozenset[str],
    name: str | None,
    since: datetime | None,
    mine: bool,
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
    find = submission_finder()

    def rows_of(backend: str) -> list[_Row]:
        with open_runner() as runner:
            apps = runner.list_newest(backend, read_cfg(runner, backend, scheduler_args) or None)
            listed = (_Row(backend, app, find) for app in apps)
            rows = _selected(listed, states, name, since, mine)
            if runner.features(backend).newest_first:
                return list(islice(rows, limit))
            return _newest(rows, limit)

    if scheduler is not None or scheduler_args:
        found: Iterable[_Row] = rows_of(choose_scheduler(scheduler))
    else:
        found = _rows_of_all_schedulers(rows_of, timeout)
    rows = _newest(found, limit)
    if mine and (missing := missing_submissions()):
        logger.info("%s", missing)
    write_rows(_COLUMNS, rows, output_format)


def _rows_of_all_schedulers(rows_of: Callable[[str], list[_Row]], timeout: float) -> Iterable[_Row]:
    # Each call of `rows_of` has its own runner, because a scheduler that hangs while it is created
    # holds the lock of its runner.
    listed = list_all(all_schedulers(), rows_of, timeout)
    if listed.errors and not listed.apps:
        options = click.get_current_context().ensure_object(GlobalOptions)
        fail(max(report_error(error, options, name) for name, error in listed.errors.items()))
    if not listed.apps:
        choose_scheduler(None)  # raises the error that no scheduler is installed
    log_errors(listed.errors)
    return chain.from_iterable(listed.apps.values())


def _selected(
    rows: Iterable[_Row],
    states: frozenset[str],
    name: str | None,
    since: datetime | None,
    mine: bool,
) -> Iterator[_Row]:
    after = None if since is None else since.astimezone()
    return (
        row
        for row in rows
        if (not states or state_name(row.app.state) in states)
        and (name is None or fnmatchcase(row.name or row.app.app_id, name))
        and (after is None or (row.began is not None and row.began >= after))
        and (not mine or row.submission is not None)
    )


def _newest(rows: Iterable[_Row], limit: int | None) -> list[_Row]:
    """Return the rows, the newest app first; rows without a time come last, in the given order.

    With a limit, no more rows than that are held at any time.
    """
    oldest = datetime.min.replace(tzinfo=timezone.utc)

    def age(row: _Row) -> datetime:
        return row.began or oldest

    if limit is None:
        return sorted(rows, key=age, reverse=True)
    return heapq.nlargest(limit, rows, key=age)
