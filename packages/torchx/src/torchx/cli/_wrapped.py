"""Wraps click commands as argparse sub-commands, for programs with their own command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from torchx.cli.cmd_base import SubCommand

if TYPE_CHECKING:
    import click


class WrappedCommand(SubCommand):
    """A command of ``torchx`` as a ``SubCommand``; a subclass sets ``command_name``."""

    command_name: str

    def command(self) -> click.Command:
        """Return the click command."""
        from torchx_cli.plugin import torchx_commands

        record = next(r for r in torchx_commands() if r.name == self.command_name)
        loaded: Any = record.load()
        found: click.Command = loaded if hasattr(loaded, "params") else loaded()
        return found

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Declare the parameters of the click command."""
        import click

        for param in self.command().params:
            if isinstance(param, click.Option):
                self._add_option(subparser, param)
            elif param.nargs == -1:
                subparser.add_argument(param.name or "", nargs=argparse.REMAINDER)
            else:
                nargs = None if param.required else "?"
                subparser.add_argument(param.name or "", nargs=nargs, default=None)

    @staticmethod
    def _add_option(subparser: argparse.ArgumentParser, param: click.Option) -> None:
        flags = [*param.opts]
        kwargs: dict[str, Any] = {"dest": param.name, "help": param.help, "default": None}
        if param.is_flag:
            kwargs["action"] = "store_true"
        elif param.multiple:
            kwargs["action"] = "append"
        subparser.add_argument(*flags, **kwargs)
        for flag in param.secondary_opts:
            subparser.add_argument(flag, dest=param.name, action="store_false", default=None)

    def run(self, args: argparse.Namespace) -> None:
        """Run the click command with the parsed arguments; exit unless its exit code is 0."""
        import sys

        from torchx_cli.main import run_command

        code = run_command(self.command(), self._argv(args))
        if code:
            sys.exit(code)

    def _argv(self, args: argparse.Namespace) -> list[str]:
        import click

        options: list[str] = []
        positional: list[str] = []
        for param in self.command().params:
            value = getattr(args, param.name or "", None)
            if value is None or value == []:
                continue
            if isinstance(param, click.Option):
                if param.is_flag:
                    options += [param.opts[0]] if value else param.secondary_opts[:1]
                else:
                    for item in value if isinstance(value, list) else [value]:
                        options += [param.opts[-1], str(item)]
            else:
                positional += [str(v) for v in value] if isinstance(value, list) else [str(value)]
        return options + positional
