"""``torchx delete``."""

from __future__ import annotations

import click

from torchx_cli.app_operations import for_each_app
from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import handles_argument


@click.command("delete", cls=Command)
@handles_argument
def command(app_handles: tuple[str, ...]) -> None:
    """Cancels the apps HANDLE and removes them, their logs included, from their scheduler.

    If an app doesn't exist, the exit code is 0.
    """
    for_each_app(app_handles, lambda runner, handle: runner.delete(handle))
