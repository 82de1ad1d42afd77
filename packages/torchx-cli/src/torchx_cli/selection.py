"""Selects apps of one scheduler or of all: by state, name, time and submitter."""

from __future__ import annotations

import functools
import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from torchx_cli.arguments.options import (
    options_as,
    scheduler_option,
    split_names,
    when_option,
)
from torchx_cli.arguments.scheduler_choice import (
    all_schedulers,
    choose_scheduler,
    read_cfg,
    take_host,
    used_schedulers,
)
from torchx_cli.completion.values import complete_states
from torchx_cli.exit_codes import GlobalOptions, fail, report_error
from torchx_cli.output.printing import format_duration, state_name
from torchx_cli.runner_context import open_runner
from torchx_runner.submissions.all_schedulers import DEFAULT_TIMEOUT, NoAnswerError, list_all
from torchx_runner.submissions.journal import (
    Submission,
    journal_is_on,
    missing_submissions,
    submission_finder,
)
from torchx_specs.errors import RequestError, nearest, one_line
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_specs.schedulers import ListAppResponse

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    names = split_names(ctx, param, tuple(value.upper() for value in values))
    known = [state.name for state in AppState]
    for name in names:
        if name not in known:
            raise RequestError(
                f"--state: unknown state '{name}';{nearest(name, known)} states: {', '.join(known)}"
            )
    return frozenset(names)


@dataclass
class ListedApp:
    """One app; the journal adds a name or a time that the scheduler does not report."""

    scheduler: str
    app: ListAppResponse
    find: Callable[[str], Submission | None]

    @functools.cached_property
    def submission(self) -> Submission | None:
        """The app's entry in the journal."""
        return self.find(self.app.app_handle)

    @property
    def name(self) -> str:
        """The name of the app; empty if unknown."""
        return self.app.name or (self.submission.name if self.submission else "")

    @property
    def submitted(self) -> datetime | None:
        """When the app was submitted."""
        return self.app.submitted or (self.submission.time if self.submission else None)

    @property
    def began(self) -> datetime | None:
        """When the app was submitted, or else when it started."""
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


class Selection(NamedTuple):
    """The values of :func:`selection_options`.

    Attributes:
        scheduler: Only apps of this scheduler; None means all schedulers.
        states: Only apps in these states; empty means all states.
        name: Only apps whose name matches this pattern.
        since: Only apps that were submitted since this time.
        mine: Only apps that this user submitted from this machine.
    """

    scheduler: str | None
    states: frozenset[str]
    name: str | None
    since: datetime | None
    mine: bool

    def apps(
        self,
        scheduler_args: tuple[str, ...] = (),
        limit: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        patience: float | None = None,
    ) -> list[ListedApp]:
        """Return the apps, the newest first.

        If some of several schedulers fail, a warning says so for each one. If all fail, the command
        exits.

        Args:
            scheduler_args: The values of ``-cfg``, for the default scheduler if none is selected.
            limit: The largest number of apps; None means all.
            timeout: How long to wait for all schedulers, in seconds.
            patience: How long to wait for the others after the first answer, in seconds.
        """
        find = submission_finder()

        def apps_of(name: str) -> list[ListedApp]:
            backend, literals = take_host(name, scheduler_args)
            with open_runner() as runner:
                cfg = read_cfg(runner, backend, literals) or None
                listed = (ListedApp(backend, a, find) for a in runner.list_newest(backend, cfg))
                found = self._matching(listed)
                if runner.features(backend).newest_first:
                    return list(islice(found, limit))
                return _newest(found, limit)

        if self.scheduler is not None or scheduler_args:
            found: Iterable[ListedApp] = apps_of(choose_scheduler(self.scheduler))
        else:
            found = _apps_of_used_schedulers(apps_of, timeout, patience)
        apps = _newest(found, limit)
        if self.mine and (missing := missing_submissions()):
            logger.info("%s", missing)
        return apps

    def _matching(self, apps: Iterable[ListedApp]) -> Iterator[ListedApp]:
        after = None if self.since is None else self.since.astimezone()
        return (
            app
            for app in apps
            if (not self.states or state_name(app.app.state) in self.states)
            and (self.name is None or fnmatchcase(app.name or app.app.app_id, self.name))
            and (after is None or (app.began is not None and app.began >= after))
            and (not self.mine or app.submission is not None)
        )


def selection_options(verb: str) -> Callable[[F], F]:
    """Return a decorator for options; the command receives :class:`Selection` as ``selection``.

    Args:
        verb: What the command does with the apps, such as ``List``.
    """
    options = (
        scheduler_option(
            f"{verb} the apps of this scheduler only.  [default: all schedulers that you use]"
        ),
        click.option(
            "--state",
            "states",
            metavar="STATE,...",
            shell_complete=complete_states,
            multiple=True,
            callback=_states,
            help=f"{verb} only apps in one of these states, such as RUNNING or FAILED,CANCELLED.",
        ),
        click.option(
            "--name",
            metavar="PATTERN",
            help=f"{verb} only apps whose name matches, such as 'train-*'.",
        ),
        when_option(
            "--since",
            help=f"{verb} only apps submitted since this time, such as 2h (two hours ago) or"
            " 2030-01-31T12:00:00Z.",
        ),
        click.option(
            "--mine", is_flag=True, help=f"{verb} only apps that you submitted from this machine."
        ),
    )
    return options_as("selection", options, _take_selection)


def _take_selection(values: dict[str, Any]) -> Selection:
    return Selection(**{name: values.pop(name) for name in Selection._fields})


def _apps_of_used_schedulers(
    apps_of: Callable[[str], list[ListedApp]], timeout: float, patience: float | None
) -> Iterable[ListedApp]:
    """Return the apps of all used schedulers; of all schedulers if none of them was ever used."""
    known, used = all_schedulers(), used_schedulers() if journal_is_on() else set()
    asked = sorted(used) or known
    # Each call of `apps_of` has its own runner, because a scheduler that hangs while it is created
    # holds the lock of its runner.
    listed = list_all(asked, apps_of, timeout, patience)
    if listed.errors and not listed.apps:
        options = click.get_current_context().ensure_object(GlobalOptions)
        fail(max(report_error(error, options, name) for name, error in listed.errors.items()))
    if not listed.apps:
        choose_scheduler(None)  # raises the error that no scheduler is installed
    _log_errors(listed.errors, used)
    if left := [name for name in known if name not in asked]:
        logger.info("not asked, as you never used them: %s (-s NAME asks one)", ", ".join(left))
    return chain.from_iterable(listed.apps.values())


def _newest(apps: Iterable[ListedApp], limit: int | None) -> list[ListedApp]:
    """Return the apps, the newest app first; apps without a time come last, in the given order.

    With a limit, no more apps than that are held at any time.
    """
    oldest = datetime.min.replace(tzinfo=timezone.utc)

    def age(app: ListedApp) -> datetime:
        return app.began or oldest

    if limit is None:
        return sorted(apps, key=age, reverse=True)
    return heapq.nlargest(limit, apps, key=age)


def _log_errors(errors: Mapping[str, Exception], used: Collection[str]) -> None:
    """Log why schedulers failed: a warning for each used one, and one line for all others.

    A scheduler that does not answer in time always gets a warning.

    Args:
        errors: Why the schedulers failed, by name.
        used: The schedulers that the user uses.
    """
    unused = [
        name
        for name, error in errors.items()
        if name not in used and not isinstance(error, NoAnswerError)
    ]
    for name, error in errors.items():
        if name not in unused or len(unused) == 1:
            logger.warning("%s: %s", name, one_line(error))
    if len(unused) > 1:
        logger.info(
            "%d schedulers cannot be used here, and have no section in .torchxconfig: %s"
            " ('torchx list -s NAME' shows why)",
            len(unused),
            ", ".join(unused),
        )
