"""The click group of ``torchx``: plugins register its commands, each imported when it is used."""

from __future__ import annotations

import os
import sys

import click

from torchx_cli.exit_codes import ARGV_KEY
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import ConfigError, PluginError, nearest
from torchx_specs.plugins.catalog import Catalog
from torchx_specs.plugins.manager import PluginManager, get_manager
from torchx_specs.plugins.records import CommandPlugin

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
            install = _catalog().installable.get(name)
            if install is not None:
                raise click.UsageError(f"command '{name}' is not installed; run: {install}", ctx)
            meant = _MEANT.get(name)
            hint = f" use 'torchx {meant}';" if meant in known else nearest(name, known)
            raise click.UsageError(
                f"no such command '{name}';{hint} commands: {', '.join(known)}", ctx
            )
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        if ctx.terminal_width is None:
            ctx.terminal_width = _terminal_width(ctx.max_content_width or 80)
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


def _terminal_width(maximum: int) -> int:
    """Return the width of help texts; click would import shutil for this, which is slow."""
    try:
        columns = int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            columns = 80
    return max(min(columns, maximum) - 2, 50)


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
