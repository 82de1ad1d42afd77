"""The ``torchx`` command: its group, whose commands plugins register, and its entry point.

Each sub-command is imported when it is used.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from torchx_cli.exit_codes import ARGV_KEY, GlobalOptions, exit_code_of
from torchx_cli.output.terminal import prepared_streams, terminal_size
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import ConfigError, PluginError, nearest
from torchx_specs.plugins.catalog import Catalog
from torchx_specs.plugins.manager import PluginManager, get_manager
from torchx_specs.plugins.records import CommandPlugin
from torchx_specs.version import __version__

# The sections of the help, with their commands in order; plugins of others come last.
_GROUPS = {
    "Launch": "run rerun sweep builtins components lint runopts",
    "Watch": "status log list cancel wait watch describe history compare diff dashboard tracker"
    " delete",
    "Get in": "shell exec cp forward",
    "Set up": "doctor configure config plugins workspace conformance",
}
# Names that other tools have for commands.
_MEANT = {
    "kill": "cancel",
    "logs": "log",
    "ls": "list",
    "ps": "list",
    "ssh": "shell",
    "stop": "cancel",
    "submit": "run",
}
_SWEEP = "sweep://"
# These commands take the handle of a sweep, too: the command `sweep` then runs.
_OF_SWEEPS = ("cancel", "compare", "delete", "log", "rerun", "status", "wait")


class CommandGroup(click.Group):
    """A group whose commands are registered by plugins.

    Listing the commands reads the plugins' records and imports no command.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_catalog().names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        catalog = _catalog()
        if cmd_name == "plugins" and cmd_name in catalog.conflicts:
            # The command reports conflicts, so a conflict about its name must not disable it.
            from torchx_cli.commands.plugins import command

            return command
        record = catalog.find(cmd_name)
        if record is None:
            return None
        loaded = load_command(record)
        _set_defaults(loaded, ctx, cmd_name)
        return loaded

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGV_KEY] = tuple(args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] in _OF_SWEEPS and "sweep" in known:
            words = _with_handles(args[1:])
            if any(word.startswith(_SWEEP) for word in words):
                args = ["sweep", args[0], *words]
        if args[0] not in known:
            name = args[0]
            if install := _catalog().install_hint(name):
                raise click.UsageError(f"command '{name}' is not installed{install}", ctx)
            meant = _MEANT.get(name)
            hint = f" use 'torchx {meant}';" if meant in known else nearest(name, known)
            raise click.UsageError(
                f"no such command '{name}';{hint} commands: {', '.join(known)}", ctx
            )
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        if ctx.terminal_width is None and "COLUMNS" not in os.environ:
            # click would import shutil for this, which is slow.
            columns, _ = terminal_size(sys.stdout)
            ctx.terminal_width = max(min(columns, ctx.max_content_width or 80) - 2, 50)
        return super().get_help(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        catalog = _catalog()
        names = set(catalog.names())
        placed = {name for group in _GROUPS.values() for name in group.split()}
        sections = {title: group.split() for title, group in _GROUPS.items()}
        sections["Other commands"] = sorted(names - placed)
        for title, group in sections.items():
            rows = [(name, _summary(catalog, name)) for name in group if name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        catalog = _catalog()
        found = [
            CompletionItem(name, help=_summary(catalog, name))
            for name in sorted(catalog.names())
            if name.startswith(incomplete)
        ]
        # click.Group.shell_complete would import every command.
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _set_defaults(command: click.Command, ctx: click.Context, name: str) -> None:
    """Let the section ``[cli:NAME]`` set defaults of the options of a plugin's command.

    Commands of the class ``Command`` read the section themselves. Commands that accept unknown
    options parse their own arguments, so they get no defaults.
    """
    from torchx_cli.arguments.options import Command, ConfiguredDefaults

    parses_itself = command.context_settings.get("ignore_unknown_options")
    if not (isinstance(command, Command) or parses_itself or ctx.resilient_parsing):
        # click passes this value to the context of the command.
        ctx.default_map = {name: ConfiguredDefaults(command, ctx)}


def load_command(record: CommandPlugin) -> click.Command:
    """Import and return the click command of a record.

    Raises:
        PluginError: The command cannot be imported or created, or is not a click command.
    """
    loaded = record.load()
    if not isinstance(loaded, click.Command) and callable(loaded):
        try:
            loaded = loaded()
        except Exception as e:
            raise PluginError(
                f"command '{record.name}' of {record.origin} cannot be created:"
                f" {type(e).__name__}: {e}"
            ) from e
    if not isinstance(loaded, click.Command):
        raise PluginError(
            f"command '{record.name}' of {record.origin} is not a click.Command: {loaded!r:.100}"
        )
    return loaded


def usable_manager() -> PluginManager:
    """Return the plugins without those that ``.torchxconfig`` disables, if it can be read.

    A command that needs the file reports that it cannot be read.
    """
    try:
        return plugin_manager()
    except ConfigError:
        return get_manager()


def _catalog() -> Catalog[CommandPlugin]:
    return usable_manager().commands()


def _with_handles(words: list[str]) -> list[str]:
    """Return words with the handle of the submission instead of ``@N``."""
    if not any(word.startswith("@") for word in words):
        return words
    from torchx_runner.submissions.journal import numbered_submissions

    found = numbered_submissions(words)
    return [found[word].handle if word in found else word for word in words]


def _summary(catalog: Catalog[CommandPlugin], name: str) -> str:
    if name in catalog.conflicts:
        return "(registered by several plugins: see torchx plugins)"
    return catalog[name].summary_text()


# -- the entry point and the global options


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
        from torchx_runner.config.files import select_profile

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
