"""The command ``torchx describe``."""

from __future__ import annotations

from dataclasses import asdict

import click

from torchx_cli.arguments.options import Command, handle_argument, output_option
from torchx_cli.output.app_data import app_document, app_text, warn_of_secrets
from torchx_cli.output.printing import TABLE, write
from torchx_cli.output.terminal import write_utf8
from torchx_cli.runner_context import existing, open_runner


@click.command("describe", cls=Command)
@output_option
@handle_argument
def command(app_handle: str, output_format: str) -> None:
    """Show the definition of the app HANDLE, as far as its scheduler remembers it.

    'torchx run FILE' accepts the output of -o yaml and -o json.
    """
    with open_runner() as runner:
        app = existing(runner.describe(app_handle), app_handle)
    if output_format == TABLE:
        write(app_text(app))
    else:
        write_utf8(app_document(app, output_format).removesuffix("\n") + "\n")
        warn_of_secrets(asdict(app))
