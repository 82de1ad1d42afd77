"""The command ``torchx status``."""

from __future__ import annotations

import logging

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import handle_argument, output_option
from torchx_cli.output.printing import TABLE, write, write_data
from torchx_cli.output.status_data import status_data
from torchx_cli.runner_context import existing_status, open_runner

logger = logging.getLogger(__name__)


@click.command("status", cls=Command)
@click.option(
    "--roles",
    "--role",
    "roles",
    metavar="NAME,...",
    multiple=True,
    help="Show only these roles.",
)
@output_option
@handle_argument
def command(app_handle: str, roles: tuple[str, ...], output_format: str) -> None:
    """Show the status of the app HANDLE and of each of its replicas.

    The exit code is 0 if the app exists, in whatever state, and 1 if it does not.
    """
    wanted = [name.strip() for group in roles for name in group.split(",") if name.strip()]
    with open_runner() as runner:
        status = existing_status(runner, app_handle)
    existing = [role.role for role in status.roles]
    for name in wanted:
        if name not in existing:
            logger.warning(
                "the app has no role '%s'; roles: %s", name, ", ".join(existing) or "none yet"
            )
    if output_format == TABLE:
        write(status.format(wanted))
    else:
        write_data(status_data(app_handle, status, wanted), output_format)
