"""The command ``torchx builtins``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import output_option
from torchx_cli.output.printing import TABLE, write, write_data
from torchx_runner.components import finder


@click.command("builtins", cls=Command)
@click.option("--print", "source_of", metavar="NAME", help="Print the source of this component.")
@output_option
def command(source_of: str | None, output_format: str) -> None:
    """List the installed components."""
    if source_of is not None:
        with redirect_stdout(sys.stderr):  # a component's module may print when it is imported
            source = finder.get_builtin_source(source_of)
        if output_format == TABLE:
            write(source)
        else:
            write_data({"name": source_of, "source": source}, output_format)
        return
    with redirect_stdout(sys.stderr):
        components = sorted(finder.get_components().values(), key=lambda c: c.name)
    if output_format != TABLE:
        write_data(
            [{"name": c.name, "description": c.description} for c in components], output_format
        )
        return
    write(f"Found {len(components)} builtin components:")
    for number, component in enumerate(components, 1):
        write(f" {number:2d}. {component.name}")
