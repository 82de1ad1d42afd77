"""``torchx delete``."""

from __future__ import annotations

import click

from torchx_cli.each_app import for_each
from torchx_cli.options import Command, handles_argument


@click.command("delete", cls=Command)
@handles_argument
def command(app_handles: tuple[str, ...]) -> None:
    """Cancels the apps HANDLE and removes them, their logs included, from their scheduler.

    If an app doesn't exist, the exit code is 0.
    """
    for_each(app_handles, lambda runner, handle: runner.delete(handle))
