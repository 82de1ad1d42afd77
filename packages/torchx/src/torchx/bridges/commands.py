"""Converts argparse sub-commands of plugins for older TorchX releases to click commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx.bridges.factories import older_object
from torchx_specs.errors import PluginError

if TYPE_CHECKING:
    import click

    from torchx.cli.cmd_base import SubCommand
    from torchx_specs.plugins.entry_points import EntryPoint


def older_subcommand(ep: EntryPoint) -> SubCommand:
    """Return an instance of the class that an entry point names.

    Raises:
        PluginError: The plugin cannot be loaded, or its object is not a SubCommand.
    """
    from torchx.cli.cmd_base import SubCommand

    created = older_object(ep)()
    if not isinstance(created, SubCommand):
        raise PluginError(
            f"command '{ep.name}' of {ep.distribution} {ep.version}: '{ep.value}' gives a"
            f" {type(created).__name__}, which is not a torchx.cli.cmd_base.SubCommand"
        )
    return created


def summary(ep: EntryPoint) -> str:
    """Return the first line of a sub-command's docstring, or a text about the plugin."""
    try:
        doc = older_object(ep).__doc__ or ""
    except PluginError as e:
        return f"(broken: {e})"
    first = doc.strip().partition("\n")[0].strip()
    return first or f"from {ep.distribution} {ep.version}"


def click_command(ep: EntryPoint, *args: Any, **kwargs: Any) -> click.Command:
    """Return a click command that passes its arguments to the sub-command's argparse parser."""
    import argparse

    import click

    subcommand = older_subcommand(ep)

    @click.command(
        ep.name,
        help=subcommand.__doc__,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        parser = argparse.ArgumentParser(
            prog=f"torchx {ep.name}",
            description=subcommand.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subcommand.add_arguments(parser)
        subcommand.run(parser.parse_args(list(arguments)))

    return command
