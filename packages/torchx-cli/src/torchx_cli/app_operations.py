"""Doing something to several apps: one that fails doesn't keep it from the others."""

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


def for_each_app(app_handles: Iterable[str], act: Callable[[Runner, str], None]) -> None:
    """Does something to each app that exists, and warns of those that don't.

    Ends the command with the highest exit code if there were errors.

    Args:
        app_handles: the apps
        act: what to do
    """
    frame = click.get_current_context().ensure_object(GlobalOptions)
    worst = 0
    with open_runner() as runner:
        for handle in dict.fromkeys(app_handles):
            try:
                if runner.status(handle) is None:
                    logger.warning("there is no app %s; nothing done", handle)
                else:
                    act(runner, handle)
            except Exception as e:  # told, and then the next
                worst = max(worst, report_error(e, frame))
    if worst:
        fail(worst)
