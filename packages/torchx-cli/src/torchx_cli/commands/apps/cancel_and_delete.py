"""The commands ``torchx cancel`` and ``torchx delete``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.options import Command, handles_argument
from torchx_cli.exit_codes import GlobalOptions, fail, report_error
from torchx_cli.output.printing import state_name
from torchx_cli.runner_context import open_runner
from torchx_cli.selection import Selection, selection_options
from torchx_specs.errors import RequestError
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_runner import Runner

logger = logging.getLogger(__name__)

_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask if several apps match.")


@click.command("cancel", cls=Command)
@selection_options("Cancel")
@_yes_option
@handles_argument(required=False)
def cancel(app_handles: tuple[str, ...], selection: Selection, yes: bool) -> None:
    """Cancel the apps HANDLE, or those that options such as --name select; keep their records.

    Some schedulers lose the logs of processes that they end.

    An app that has ended or does not exist is not an error: the exit code is 0.
    """
    handles = _chosen("cancel", app_handles, selection, yes, unfinished=True)
    _for_each_app(handles, lambda runner, handle: runner.cancel(handle))


@click.command("delete", cls=Command)
@selection_options("Delete")
@_yes_option
@handles_argument(required=False)
def delete(app_handles: tuple[str, ...], selection: Selection, yes: bool) -> None:
    """Delete the apps HANDLE, or those that options such as --name select.

    An app that runs is cancelled. Its record and logs are deleted from the scheduler.

    On AWS, the logs stay in CloudWatch as long as their log group keeps them.

    A missing app is not an error: the exit code is 0.
    """
    handles = _chosen("delete", app_handles, selection, yes, unfinished=False)
    _for_each_app(handles, lambda runner, handle: runner.delete(handle))


def _chosen(
    verb: str,
    app_handles: Sequence[str],
    selection: Selection,
    yes: bool,
    *,
    unfinished: bool,
) -> Sequence[str]:
    """Return the given handles, or those of the selected apps, after a question if they are many.

    Args:
        verb: What the command does, for the question.
        app_handles: The handles on the command line.
        selection: The options that select apps.
        yes: Whether not to ask.
        unfinished: Whether the options select only apps that have not ended.
    """
    if app_handles and any(selection):
        raise click.UsageError("a HANDLE, and options that select apps, exclude each other")
    if app_handles:
        return app_handles
    if not any(selection):
        raise click.UsageError(
            "which apps? Give a HANDLE, or select them by -s, --name, --state, --since or --mine"
            " ('torchx list' takes the same options)"
        )
    apps = [one.app for one in selection.apps() if not (unfinished and is_terminal(one.app.state))]
    handles = [app.app_handle for app in apps]
    if not handles:
        logger.warning("no app matches; nothing changed")
    if len(handles) > 1 and not yes:
        for app in apps:
            click.echo(f"{app.app_handle}  {state_name(app.state)}", err=True)
        if not sys.stdin.isatty():
            raise RequestError(f"{len(handles)} apps match; {verb} them all with --yes")
        if not click.confirm(f"{verb} these {len(handles)} apps?", err=True):
            return []
    for handle in handles:
        logger.info("%s %s", verb, handle)
    return handles


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
