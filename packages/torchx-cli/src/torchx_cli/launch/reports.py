"""What a command reports while it waits for an app: state changes, interrupts, and the end."""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import TYPE_CHECKING

from torchx_cli.output.colors import takes_color
from torchx_cli.output.printing import state_name
from torchx_specs.model.status import AppState, AppStatus, is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx_runner import Runner

logger = logging.getLogger(__name__)

#: The shortest time between two messages that differ only in their numbers, in seconds.
_REPEAT_SECONDS = 60.0
_NUMBER = re.compile(r"\d+")


class StateChanges:
    """Logs the changes of an app's state while a command waits for the app.

    Each new state, reason and restart is logged. If only the numbers in a reason have changed, the
    message is logged at most once a minute. The end of the app is not logged, because the caller
    reports the end.

    Args:
        shows_first_run: Whether to log an app that runs at the first poll. If False, nothing is
            logged until this app restarts or stops running.
        clock: Function that returns a time in seconds.
    """

    def __init__(
        self, shows_first_run: bool = False, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shows_first_run = shows_first_run
        self._clock = clock
        self._state: AppState | None = None
        self._restarts = 0
        # When a message was logged last, by its state and its reason without numbers.
        self._logged: dict[str, float] = {}

    def observe(self, status: AppStatus) -> None:
        """Log the status if the state, the reason or the number of restarts has changed.

        Args:
            status: The present status of the app.
        """
        before, self._state = self._state, status.state
        has_restarted = before is not None and status.num_restarts > self._restarts
        self._restarts = max(self._restarts, status.num_restarts)
        runs_from_the_start = (
            before in (None, AppState.RUNNING) and not self._logged and not self._shows_first_run
        )
        if is_terminal(status.state) or (
            status.state == AppState.RUNNING and runs_from_the_start and not has_restarted
        ):
            return
        # This module is part of `torchx run`, which must start quickly.
        from torchx_cli.output.status_text import detail, summary

        reason = detail(status)
        kind = f"{status.state.name} {_NUMBER.sub('', reason)}"
        now = self._clock()
        if status.state == before and not has_restarted and kind in self._logged:
            has_numbers = _NUMBER.search(reason) is not None
            if not has_numbers or now - self._logged[kind] < _REPEAT_SECONDS:
                return
        self._logged[kind] = now
        text = summary(status)
        if has_restarted:
            ended = status.attempts[-2:-1]
            why = f" after {ended[0].reason}" if ended else ""
            text = f"restart {status.num_restarts}{why}: {text}"
        logger.info("%s", text)


def say_what_continues(app_handle: str) -> None:
    """Log that an app continues after an interrupt, and how to reach the app."""
    logger.warning(
        "%s continues; run 'torchx cancel %s' to end it, 'torchx wait %s' to wait for it again, or"
        " 'torchx log --tail %s' to follow its logs",
        *[app_handle] * 4,
    )


def log_end(status: AppStatus) -> None:
    """Log the state of an ended app, how long the app ran, and what failed first.

    A success in less than a second is logged without the duration.

    Args:
        status: The last status of the app.
    """
    if status.state == AppState.SUCCEEDED and not _took_seconds(status):
        logger.info("job finished: %s", state_name(status.state))
        return
    # Imported here, so that a short `torchx run` that succeeds does not load the module.
    from torchx_cli.output.status_text import summary

    level = logging.INFO if status.state == AppState.SUCCEEDED else logging.ERROR
    logger.log(level, "job finished: %s", summary(status))


def _took_seconds(status: AppStatus) -> bool:
    if status.started is None or status.ended is None:
        return False
    return (status.ended - status.started).total_seconds() >= 1


def show_failure(
    runner: Runner, app_handle: str, status: AppStatus, *, are_logs_shown: bool = False
) -> None:
    """Show the end of the log of the first failed replica, and the commands that show more.

    Everything is written to standard error. If the app did not fail, nothing is shown.

    Args:
        runner: The runner that knows the app.
        app_handle: The app.
        status: The last status of the app.
        are_logs_shown: Whether the logs of the app were shown before. If so, and the app has only
            one replica, the log is not repeated.
    """
    from torchx_cli.logs.error_lines import error_line, last_lines
    from torchx_cli.output.status_text import first_failure

    failure = first_failure(status)
    if status.state != AppState.FAILED:
        return
    if failure is None:
        logger.error("'torchx status %s' shows more", app_handle)
        return
    replica = (failure.replica.role, failure.replica.id)
    source = f"{app_handle}/{replica[0]}/{replica[1]}"
    name, held, problem = last_lines(runner, app_handle, replica)
    if not are_logs_shown or sum(len(role.replicas) for role in status.roles) > 1:
        if problem is not None:
            logger.warning("the log of %s/%d is not available: %s", *replica, problem)
        elif held:
            _show_lines(app_handle, replica, name, held)
    error = "" if failure.message else error_line(held)
    logger.error(
        "%s'torchx log %s' and 'torchx status %s' show more",
        f"{error} in {replica[0]}/{replica[1]}; " if error else "",
        source,
        app_handle,
    )


def _show_lines(app_handle: str, replica: tuple[str, int], name: str, held: list[str]) -> None:
    """Show the last lines of a replica's standard error or log."""
    from torchx_cli.logs.reader import LogReader
    from torchx_specs.schedulers.logs import LogQuery

    logger.error("the last lines of the %s of %s/%d:", name, *replica)
    reader = LogReader(
        lambda *args: iter([(replica, held)]),
        app_handle,
        LogQuery(),
        sys.stderr,
        takes_color(sys.stderr),
    )
    reader.read_all([replica])
