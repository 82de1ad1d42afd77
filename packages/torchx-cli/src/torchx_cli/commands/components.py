"""The commands ``torchx builtins`` and ``torchx components``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from torchx_cli.arguments.options import Command, output_option
from torchx_cli.output.printing import write, write_result
from torchx_runner.components import finder

#: The names of the folders in ``scaffold/templates/component``.
TEMPLATE_NAMES = ("ddp", "hydra", "script", "service")


@click.command("builtins", cls=Command)
@click.option("--print", "source_of", metavar="NAME", help="Print the source of this component.")
@output_option
def builtins(source_of: str | None, output_format: str) -> None:
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


@click.group("components")
def command() -> None:
    """Create components from templates; `torchx builtins` lists the installed ones."""


@command.command("new", short_help="Create a component and a job from a template.")
@click.argument("name", metavar="NAME")
@click.option(
    "--template",
    type=click.Choice(TEMPLATE_NAMES),
    default="script",
    show_default=True,
    help="Select the template: ddp trains with DistributedDataParallel, hydra reads a Hydra"
    " configuration, script runs a Python script, service is an HTTP server.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Write the files to this directory.  [default: the working directory]",
)
def new(name: str, template: str, directory: Path) -> None:
    """Create NAME.py with the component NAME, and NAME_job.py, the program that it runs.

    The template hydra also creates NAME.yaml, the configuration of the program.
    """
    from torchx_cli.scaffold.create import create_component

    first, *others = create_component(name, template, directory)
    write(f"created {first} with the component '{name}', and {', '.join(map(str, others))}")
    change = "" if directory == Path() else f"cd {directory} && "
    write(f"run it: {change}torchx run -s local_cwd {name}.py:{name}")
