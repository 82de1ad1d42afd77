"""Import path of the command-line tool in older TorchX releases.

Some programs build their own command-line tool from the functions in this module.
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx.cli.cmd_cancel import CmdCancel as CmdCancel
from torchx.cli.cmd_configure import CmdConfigure as CmdConfigure
from torchx.cli.cmd_delete import CmdDelete as CmdDelete
from torchx.cli.cmd_describe import CmdDescribe as CmdDescribe
from torchx.cli.cmd_list import CmdList as CmdList
from torchx.cli.cmd_log import CmdLog as CmdLog
from torchx.cli.cmd_run import CmdBuiltins as CmdBuiltins
from torchx.cli.cmd_run import CmdRun as CmdRun
from torchx.cli.cmd_runopts import CmdRunopts as CmdRunopts
from torchx.cli.cmd_status import CmdStatus as CmdStatus
from torchx.cli.cmd_tracker import CmdTracker as CmdTracker
from torchx.util.entrypoints import load_group as load_group
from torchx_cli.output.colors import BLUE as BLUE
from torchx_cli.output.colors import ENDC as ENDC
from torchx_cli.output.colors import GRAY as GRAY
from torchx_specs.plugins.entry_points import entry_points
from torchx_specs.version import __version__

sub_parser_description = (
    "Use the following commands to run operations, e.g.: torchx run ${JOB_NAME}"
)


def get_default_sub_cmds() -> dict[str, SubCommand]:
    """Return the built-in commands by name."""
    return {
        "builtins": CmdBuiltins(),
        "cancel": CmdCancel(),
        "configure": CmdConfigure(),
        "delete": CmdDelete(),
        "describe": CmdDescribe(),
        "list": CmdList(),
        "log": CmdLog(),
        "run": CmdRun(),
        "runopts": CmdRunopts(),
        "status": CmdStatus(),
        "tracker": CmdTracker(),
    }


def get_sub_cmds() -> dict[str, SubCommand]:
    """Return the built-in commands and the plugins' commands; a plugin may replace a command."""
    from torchx.bridges.commands import older_subcommand

    plugins = {ep.name: older_subcommand(ep) for ep in entry_points("torchx.cli.cmds")}
    return {**get_default_sub_cmds(), **plugins}


def create_parser(subcmds: dict[str, SubCommand]) -> argparse.ArgumentParser:
    """Return an argparse parser with these commands; ``args.func`` runs the selected one."""
    parser = argparse.ArgumentParser(prog="torchx", description="torchx CLI")
    parser.add_argument("--log_level", type=str, default="INFO", help="Python logging log level")
    parser.add_argument("--version", action="version", version=f"torchx-{__version__}")
    subparsers = parser.add_subparsers(title="sub-commands", description=sub_parser_description)
    for name, command in subcmds.items():
        subparser = subparsers.add_parser(name, description=command.__doc__)
        command.add_arguments(subparser)
        subparser.set_defaults(func=command.run)
    return parser


def run_main(subcmds: dict[str, SubCommand], argv: list[str] | None = None) -> None:
    """Run the command in ``argv``; if it names no command, print the help and exit with 1."""
    parser = create_parser(subcmds)
    args: Any = parser.parse_args(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=args.log_level.upper())
    if not hasattr(args, "func"):
        parser.print_help()
        sys.exit(1)
    args.func(args)


def main(argv: list[str] | None = None) -> None:
    """Run the ``torchx`` command; after ``--version`` or ``--help``, exit as in older releases."""
    from torchx_cli.main import main as run

    run(argv)
    arguments = sys.argv[1:] if argv is None else argv
    command = next((i for i, arg in enumerate(arguments) if arg[:1] != "-"), len(arguments))
    if {"--version", "--help", "-h"} & set(arguments[: command + 2]):
        sys.exit(0)
