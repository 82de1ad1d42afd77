"""The command ``torchx builtins``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import output_option
from torchx_cli.output.printing import write_result
from torchx_runner.components import finder


@click.command("builtins", cls=Command)
@click.option("--print", "source_of", metavar="NAME", help="Print the source of this component.")
@output_option
def command(source_of: str | None, output_format: str) -> None:
    """List the installed components."""
    if source_of is not None:
        with redirect_stdout(sys.stderr):  # a component's module may print when it is imported
            source = finder.get_builtin_source(source_of)
        write_result({"name": source_of, "source": source}, source, output_format)
        return
    with redirect_stdout(sys.stderr):
        components = sorted(finder.get_components().values(), key=lambda c: c.name)
    data = [{"name": c.name, "description": c.description} for c in components]
    lines = [f" {number:2d}. {c.name}" for number, c in enumerate(components, 1)]
    text = "\n".join([f"Found {len(components)} builtin components:", *lines])
    write_result(data, text, output_format)
