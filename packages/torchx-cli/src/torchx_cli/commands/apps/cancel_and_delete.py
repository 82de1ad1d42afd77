"""The commands ``torchx cancel`` and ``torchx delete``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import handles_argument
from torchx_cli.exit_codes import GlobalOptions, fail, report_error
from torchx_cli.runner_context import open_runner

if TYPE_CHECKING:
    from torchx_runner import Runner

logger = logging.getLogger(__name__)


@click.command("cancel", cls=Command)
@handles_argument
def cancel(app_handles: tuple[str, ...]) -> None:
    """Cancel the apps HANDLE, and keep their records.

    Some schedulers lose the logs of processes that they end.

    An app that has ended or does not exist is not an error: the exit code is 0.
    """
    _for_each_app(app_handles, lambda runner, handle: runner.cancel(handle))


@click.command("delete", cls=Command)
@handles_argument
def delete(app_handles: tuple[str, ...]) -> None:
    """Cancel the apps HANDLE, and delete their records and logs from the scheduler.

    On AWS, the logs stay in CloudWatch as long as their log group keeps them.

    A missing app is not an error: the exit code is 0.
    """
    _for_each_app(app_handles, lambda runner, handle: runner.delete(handle))


def _for_each_app(app_handles: Iterable[str], operation: Callable[[Runner, str], None]) -> None:
    """Apply an operation to each app that exists, and log a warning for each missing app.

    If the operation fails for one app, the error is reported, and the other apps are still
    processed. At the end, the command exits with the highest exit code of these errors.

    Args:
        app_handles: The apps.
        operation: Called with the runner and the handle of each app.
    """
    options = click.get_current_context().ensure_object(GlobalOptions)
    worst = 0
    with open_runner() as runner:
        for handle in dict.fromkeys(app_handles):
            try:
                if runner.exists(handle):
                    operation(runner, handle)
                else:
                    logger.warning("app %s does not exist; nothing changed", handle)
            except Exception as e:  # report the error, and continue with the next app
                worst = max(worst, report_error(e, options))
    if worst:
        fail(worst)
