"""The ``torchx`` group: finds its commands by the hook, and imports one only to run it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from torchx_cli.exit_codes import ARGV_KEY
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import ConfigError, PluginError, nearest
from torchx_specs.plugins.manager import get_manager

if TYPE_CHECKING:
    from torchx_specs.plugins.manager import Catalog
    from torchx_specs.plugins.records import CommandPlugin


class CommandGroup(click.Group):
    """A group whose commands are those that plugins give.

    Listing reads the plugins' records and imports no command.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _catalog().names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        catalog = _catalog()
        if cmd_name == "plugins" and cmd_name in catalog.conflicts:
            from torchx_cli.commands.plugins import command

            return command  # the one that tells of conflicts is not to be lost to one
        record = catalog.find(cmd_name)
        return None if record is None else load_command(record)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGV_KEY] = tuple(args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0] not in known:
            name = args[0]
            raise click.UsageError(
                f"no such command '{name}';{nearest(name, known)} commands: {', '.join(known)}",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        if ctx.terminal_width is None:
            ctx.terminal_width = _terminal_width(ctx.max_content_width or 80)
        return super().get_help(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        catalog = _catalog()
        rows = [(name, _summary(catalog, name)) for name in catalog.names()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        catalog = _catalog()
        found = [
            CompletionItem(name, help=_summary(catalog, name))
            for name in catalog.names()
            if name.startswith(incomplete)
        ]
        # the options come from click.Command; click.Group's own would import every command
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _terminal_width(most: int) -> int:
    """Returns the width for help texts; click asks shutil, which takes long to import."""
    try:
        columns = int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            columns = 80
    return max(min(columns, most) - 2, 50)


def load_command(record: CommandPlugin) -> click.Command:
    """Returns the click command of a record, importing it.

    Raises:
        PluginError: it cannot be imported, or is no click command
    """
    made = record.load()
    if not isinstance(made, click.Command) and callable(made):
        try:
            made = made()
        except Exception as e:
            raise PluginError(
                f"command '{record.name}' of {record.origin} cannot be made:"
                f" {type(e).__name__}: {e}"
            ) from e
    if not isinstance(made, click.Command):
        raise PluginError(
            f"command '{record.name}' of {record.origin} is no click.Command: {made!r:.100}"
        )
    return made


def _catalog() -> Catalog[CommandPlugin]:
    try:
        manager = plugin_manager()
    except ConfigError:  # help is still to be had; a command that needs the file tells of it
        manager = get_manager()
    return manager.commands()


def _summary(catalog: Catalog[CommandPlugin], name: str) -> str:
    if name in catalog.conflicts:
        return "(given by several plugins: see torchx plugins)"
    return catalog[name].summary_text()
