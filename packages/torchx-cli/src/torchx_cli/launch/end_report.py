"""Reports how an app ended: the state, the first failed replica, the end of its log."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from torchx_cli.output.colors import takes_color
from torchx_cli.output.printing import state_name
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)


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
        [replica],
        LogQuery(),
        sys.stderr,
        takes_color(sys.stderr),
    )
    reader.read_all()
