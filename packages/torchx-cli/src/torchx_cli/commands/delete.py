"""The command ``torchx delete``."""

from __future__ import annotations

import click

from torchx_cli.app_operations import for_each_app
from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import handles_argument


@click.command("delete", cls=Command)
@handles_argument
def command(app_handles: tuple[str, ...]) -> None:
    """Cancel the apps HANDLE, and delete their records and logs from the scheduler.

    A missing app is not an error: the exit code is 0.
    """
    for_each_app(app_handles, lambda runner, handle: runner.delete(handle))
