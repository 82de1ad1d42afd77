"""The entry point of the ``torchx`` command."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from torchx_cli.exit_codes import GlobalOptions, exit_code_of
from torchx_cli.group import CommandGroup
from torchx_cli.output.terminal import prepared_streams
from torchx_specs.version import __version__


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command, and exit the process if the exit code is not 0.

    Args:
        argv: The arguments after ``torchx``; None means the arguments of this process.
    """
    code = execute(argv)
    # Without this call, Python collects garbage while the process ends. That takes 0.5 s if the
    # library of Kubernetes was imported.
    gc.freeze()
    if code:
        sys.exit(code)


def execute(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code; see :func:`main`."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if "_TORCHX_COMPLETE" not in os.environ:
        return run_command(torchx, arguments)
    from torchx_cli.completion.answer import answer

    with prepared_streams():
        return exit_code_of(lambda: answer(torchx, arguments), GlobalOptions())


def run_command(command: click.Command, argv: Sequence[str]) -> int:
    """Run the command or, without the group, one sub-command, and return its exit code.

    Args:
        command: The command.
        argv: The arguments after the name of the command.
    """
    options = GlobalOptions()

    def body() -> None:
        # click's main() is not used: it handles errors, interrupts and closed pipes differently.
        ctx = command.make_context(command.name, list(argv), obj=options, **_SETTINGS)
        with ctx:
            command.invoke(ctx)

    with prepared_streams():
        return exit_code_of(body, options)


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(GlobalOptions).debug = True


def _set_log_level(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    # Logging is set up while the options are parsed, because the next step, the lookup of the
    # command, may log problems of plugins.
    if not ctx.resilient_parsing:
        from torchx_cli import logging_setup

        logging_setup.configure(value or os.environ.get("LOGLEVEL") or "INFO")


def _select_profile(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        from torchx_runner.config.profiles import select_profile

        select_profile(value)
        # A completion needs the profile when this context is closed, but its parent is not.
        ctx.find_root().call_on_close(lambda: select_profile(None))


def _complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from torchx_cli.completion.values import complete_profiles

    return complete_profiles(ctx, param, incomplete)


def _with_dashes(name: str) -> str:
    """Return the name with dashes: ``--parent_run_id`` and ``--parent-run-id`` are one option."""
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
    epilog="'torchx COMMAND --help' shows more. Commands on an app take its HANDLE, which"
    " 'torchx run' prints, such as slurm://torchx/17. Short forms are the name of the app (the"
    " newest one), @1 for your last submission, @2 for the one before. Exit codes: 0 success, 1 the"
    " job failed or there is no such app, 2 the request is wrong, 3 the scheduler's backend"
    " failed.",
)
@click.option(
    "--log_level",
    metavar="LEVEL",
    expose_value=False,
    callback=_set_log_level,
    help="Show log messages of this level and above: DEBUG, INFO, WARNING or ERROR. Libraries show"
    " warnings only, unless the level is DEBUG.  [default: $LOGLEVEL, or INFO]",
)
@click.option(
    "--profile",
    metavar="NAME",
    expose_value=False,
    callback=_select_profile,
    shell_complete=_complete_profiles,
    help="Use the sections [profile.NAME.…] of .torchxconfig; their values win over the plain"
    " sections.  [default: $TORCHX_PROFILE]",
)
@click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Print the traceback of an error.",
)
@click.version_option(__version__, message="torchx-%(version)s", help="Print the version.")
@click.pass_context
def torchx(ctx: click.Context) -> None:
    """Launch and manage jobs on any scheduler."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(1)
