"""Converts argparse sub-commands of plugins for older TorchX releases to click commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx.bridges.factories import OlderFactory
from torchx_specs.errors import PluginError

if TYPE_CHECKING:
    import click

    from torchx.cli.cmd_base import SubCommand


class OlderCommand(OlderFactory):
    """Wraps an argparse ``SubCommand`` class in a click command."""

    def subcommand(self) -> SubCommand:
        """Return an instance of the plugin's class.

        Raises:
            PluginError: The plugin cannot be loaded, or its object is not a SubCommand.
        """
        from torchx.cli.cmd_base import SubCommand

        created = self.load()()
        if not isinstance(created, SubCommand):
            ep = self.entry_point
            raise PluginError(
                f"command '{ep.name}' of {ep.distribution} {ep.version}: '{ep.value}' gives a"
                f" {type(created).__name__}, which is not a torchx.cli.cmd_base.SubCommand"
            )
        return created

    def __call__(self, *args: Any, **kwargs: Any) -> click.Command:
        return click_command(self.entry_point.name, self.subcommand())


class SubCommandSummary(OlderFactory):
    """Returns the first line of a sub-command's docstring, or a text about the plugin.

    The plugin is imported only when the summary is called.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        ep = self.entry_point
        try:
            doc = self.load().__doc__ or ""
        except PluginError as e:
            return f"(broken: {e})"
        first = doc.strip().partition("\n")[0].strip()
        return first or f"from {ep.distribution} {ep.version}"


def click_command(name: str, subcommand: SubCommand) -> click.Command:
    """Return a click command that passes its arguments to the sub-command's argparse parser."""
    import argparse

    import click

    @click.command(
        name,
        help=subcommand.__doc__,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        parser = argparse.ArgumentParser(
            prog=f"torchx {name}",
            description=subcommand.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subcommand.add_arguments(parser)
        subcommand.run(parser.parse_args(list(arguments)))

    return command
