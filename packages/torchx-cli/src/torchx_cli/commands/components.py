"""The command group ``torchx components``."""

from __future__ import annotations

from pathlib import Path

import click

from torchx_cli.output.printing import write

#: The names of the folders in ``scaffold/templates/component``.
TEMPLATE_NAMES = ("ddp", "hydra", "script", "service")


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
