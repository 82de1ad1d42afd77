"""The command ``torchx status``."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.options import Command, handle_argument, output_option, split_names
from torchx_cli.logs.error_lines import program_error
from torchx_cli.output.live_region import LiveRegion
from torchx_cli.output.printing import TABLE, write, write_result
from torchx_cli.output.status_text import status_data, status_text, summary
from torchx_cli.output.terminal import can_replace_text
from torchx_cli.runner_context import existing, open_runner
from torchx_specs.model.status import AppState, AppStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchx_runner import Runner

logger = logging.getLogger(__name__)

#: The longest time between two polls of a watched app, in seconds. The text contains durations, so
#: it must be updated even if the state does not change.
_INTERVAL = 2.0


@click.command("status", cls=Command)
@click.option(
    "--roles",
    "--role",
    "roles",
    metavar="NAME,...",
    multiple=True,
    callback=split_names,
    help="Show only these roles.",
)
@click.option("--replicas", "all_replicas", is_flag=True, help="Show every replica.")
@click.option(
    "--watch",
    is_flag=True,
    help="Show the status until the app has ended: updated in place on a terminal, elsewhere a line"
    " for each change.",
)
@output_option
@handle_argument
def command(
    app_handle: str, roles: tuple[str, ...], all_replicas: bool, watch: bool, output_format: str
) -> None:
    """Show the status of the app HANDLE, and its replicas grouped by state and reason.

    The first line has the state, how long the app ran, and the replica that failed first, or why
    the app waits. The exit code is 0 if the app exists, in whatever state, and 1 if it does not.
    """
    with open_runner() as runner:
        if watch and output_format == TABLE:
            _watch(runner, app_handle, roles, all_replicas)
            return
        if watch:
            found = runner.wait(app_handle, wait_interval=_INTERVAL)
        else:
            found = runner.status(app_handle)
        status = existing(found, app_handle)
        _add_submission(app_handle, status)
        error = program_error(runner, app_handle, status)
    names = [role.role for role in status.roles]
    for name in roles:
        if name not in names:
            logger.warning(
                "the app has no role '%s'; roles: %s", name, ", ".join(names) or "none yet"
            )
    text = status_text(app_handle, status, roles, all_replicas=all_replicas, error=error)
    write_result(status_data(app_handle, status, list(roles), error), text, output_format)


def _add_submission(app_handle: str, status: AppStatus) -> None:
    """Set the time of the submission from the journal, if the scheduler does not report it."""
    if status.submitted is None:
        from torchx_runner.submissions.journal import find_submission

        submission = find_submission(app_handle)
        status.submitted = None if submission is None else submission.time


def _watch(runner: Runner, app_handle: str, roles: Sequence[str], all_replicas: bool) -> None:
    """Show the status of an app until it has ended.

    A scheduler that can watch apps is polled as soon as the app changes.
    """
    region = LiveRegion(sys.stdout, sys.maxsize) if can_replace_text(sys.stdout) else None
    shown: tuple[AppState, str] | None = None

    def show(status: AppStatus) -> None:
        nonlocal shown
        _add_submission(app_handle, status)
        if region is not None:
            text = status_text(app_handle, status, roles, all_replicas=all_replicas)
            region.draw("", text.splitlines())
            return
        # Compare without durations, which differ at each poll.
        timeless = replace(status, submitted=None, started=None, ended=None)
        state = (status.state, summary(timeless))
        if state != shown:
            print(summary(status), flush=True)
        shown = state

    found = runner.wait(app_handle, wait_interval=_INTERVAL, observe=show)
    status = existing(found, app_handle)
    if region is None:
        write(status_text(app_handle, status, roles, all_replicas=all_replicas))
