"""Apply an operation to several apps; an error with one app does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from torchx_cli.exit_codes import GlobalOptions, fail, report_error
from torchx_cli.session import open_runner

if TYPE_CHECKING:
    from torchx_runner import Runner

logger = logging.getLogger(__name__)


def for_each_app(app_handles: Iterable[str], operation: Callable[[Runner, str], None]) -> None:
    """Apply an operation to each app that exists, and log a warning for each missing app.

    An error with one app is reported, and the next app follows. At the end, the command exits with
    the highest exit code of these errors.

    Args:
        app_handles: The apps.
        operation: Called with the runner and the handle of each app.
    """
    options = click.get_current_context().ensure_object(GlobalOptions)
    worst = 0
    with open_runner() as runner:
        for handle in dict.fromkeys(app_handles):
            try:
                if runner.status(handle) is None:
                    logger.warning("app %s does not exist; nothing changed", handle)
                else:
                    operation(runner, handle)
            except Exception as e:  # reported; the next app follows
                worst = max(worst, report_error(e, options))
    if worst:
        fail(worst)
