"""The command ``torchx cancel``."""

from __future__ import annotations

import click

from torchx_cli.app_operations import for_each_app
from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import handles_argument


@click.command("cancel", cls=Command)
@handles_argument
def command(app_handles: tuple[str, ...]) -> None:
    """Cancel the apps HANDLE, and keep their records and logs.

    An app that has ended or does not exist is not an error: the exit code is 0.
    """
    for_each_app(app_handles, lambda runner, handle: runner.cancel(handle))
