"""``torchx cancel``."""

from __future__ import annotations

import click

from torchx_cli.each_app import for_each
from torchx_cli.options import Command, handles_argument


@click.command("cancel", cls=Command)
@handles_argument
def command(app_handles: tuple[str, ...]) -> None:
    """Cancels the apps HANDLE; their record and logs stay.

    Of an app that has ended or doesn't exist, nothing is changed, and the exit code is 0.
    """
    for_each(app_handles, lambda runner, handle: runner.cancel(handle))
