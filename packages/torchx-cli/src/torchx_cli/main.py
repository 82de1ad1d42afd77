"""The entry of the ``torchx`` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from torchx_cli.exit_codes import GlobalOptions, exit_code_of
from torchx_cli.group import CommandGroup
from torchx_cli.output.standard_streams import tolerant_streams
from torchx_specs.version import __version__


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; exits if its exit code is not 0.

    Args:
        argv: the words after ``torchx``, those of this process if None
    """
    code = execute(argv)
    if code:
        sys.exit(code)


def execute(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; see :func:`main`."""
    frame = GlobalOptions()
    words = sys.argv[1:] if argv is None else list(argv)

    def body() -> None:
        if "_TORCHX_COMPLETE" in os.environ:
            torchx.main(words, prog_name="torchx")  # answers the shell, and exits
        # without click's own main(), which has other ideas about errors, interrupts and pipes
        with torchx.make_context("torchx", words, obj=frame) as ctx:
            torchx.invoke(ctx)

    with tolerant_streams():
        return exit_code_of(body, frame)


def run_command(command: click.Command, argv: Sequence[str]) -> int:
    """Runs one of the commands outside of ``torchx`` and returns its exit code.

    Args:
        command: the command
        argv: the words after its name
    """
    frame = GlobalOptions()

    def body() -> None:
        ctx = command.make_context(command.name, list(argv), obj=frame, **_SETTINGS)
        with ctx:
            command.invoke(ctx)

    with tolerant_streams():
        return exit_code_of(body, frame)


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"torchx-{__version__}")
        ctx.exit()


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(GlobalOptions).debug = True


def _set_log_level(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    # while the options are parsed: what is wrong with plugins shows as soon as commands are sought
    if not ctx.resilient_parsing:
        from torchx_cli import logging_setup

        logging_setup.configure(value or os.environ.get("LOGLEVEL") or "INFO")


def _with_dashes(name: str) -> str:
    """``--parent_run_id`` and ``--parent-run-id`` are one option."""
    return name.replace("_", "-")


_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": _with_dashes,
    "max_content_width": 100,
}


@click.command(
    "torchx",
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings=_SETTINGS,
    epilog="'torchx COMMAND --help' shows more. Exit codes: 0 done, 1 the job failed or there is"
    " no such app, 2 something is wrong in the request, 3 the scheduler's system failed.",
)
@click.option(
    "--log_level",
    metavar="LEVEL",
    expose_value=False,
    callback=_set_log_level,
    help="Show log messages of at least this level (DEBUG, INFO, WARNING, ERROR); those of"
    " libraries from WARNING on, unless it is DEBUG.  [default: $LOGLEVEL, or INFO]",
)
@click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version.",
)
@click.pass_context
def torchx(ctx: click.Context) -> None:
    """Launches jobs on any scheduler, from one definition."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(1)
