"""Wraps click commands as argparse sub-commands, for programs with their own command line."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from torchx._forward import forward
from torchx.cli.cmd_base import SubCommand

if TYPE_CHECKING:
    import click

# Attributes of the parsed arguments in older releases, by the name of the click parameter.
_OLDER_NAMES = {
    "app_handles": "app_handle",
    "as_json": "json",
    "component_and_arguments": "component_name_and_args",
    "run_id": "RUN_ID",
    "source_of": "print",
    "to_stdout": "print",
    "with_defaults": "all",
}


class WrappedCommand(SubCommand):
    """A command of ``torchx`` as a ``SubCommand``; a subclass sets ``command_name``."""

    command_name: str

    def command(self) -> click.Command:
        """Return the click command.

        Raises:
            PluginError: Neither torchx-cli nor torchx-tracker has a command of this name.
        """
        import click

        from torchx_cli.plugin import torchx_commands
        from torchx_specs.errors import PluginError
        from torchx_tracker.plugin import torchx_commands as tracker_commands

        for record in (*torchx_commands(), *tracker_commands()):
            if record.name == self.command_name:
                loaded: Any = record.load()
                found: click.Command = loaded if isinstance(loaded, click.Command) else loaded()
                return found
        raise PluginError(f"there is no command '{self.command_name}'")

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Declare the parameters of the click command, and its sub-commands.

        The parsed arguments of a sub-command have an attribute ``func``, which runs the
        sub-command.
        """
        self._add_command(subparser, self.command(), [])

    def _add_command(
        self, parser: argparse.ArgumentParser, command: click.Command, path: list[str]
    ) -> None:
        import click

        if isinstance(command, click.Group):
            subparsers = parser.add_subparsers()
            for name, subcommand in command.commands.items():
                subparser = subparsers.add_parser(name, description=subcommand.help)
                subparser.set_defaults(func=partial(self._run, path=[*path, name]))
                self._add_command(subparser, subcommand, [*path, name])
            return
        for param in command.params:
            if isinstance(param, click.Option):
                self._add_option(parser, param)
            elif _is_remainder(param):
                parser.add_argument(_dest(param), nargs=argparse.REMAINDER)
            else:
                parser.add_argument(_dest(param), nargs=None if param.required else "?")

    @staticmethod
    def _add_option(subparser: argparse.ArgumentParser, param: click.Option) -> None:
        flags = [*param.opts]
        kwargs: dict[str, Any] = {"dest": _dest(param), "help": param.help, "default": None}
        if param.is_flag:
            kwargs["action"] = "store_true"
        elif param.multiple:
            kwargs["action"] = "append"
        subparser.add_argument(*flags, **kwargs)
        for flag in param.secondary_opts:
            subparser.add_argument(flag, dest=_dest(param), action="store_false", default=None)

    def run(self, args: argparse.Namespace) -> None:
        """Run the command with the parsed arguments; exit unless its exit code is 0.

        A command with sub-commands runs the selected one.
        """
        func = getattr(args, "func", None)
        if isinstance(func, partial) and func.func == self._run:
            func(args)
        else:
            self._run(args, path=[])

    def _run(self, args: argparse.Namespace, path: list[str]) -> None:
        from torchx_cli.main import run_command

        command = target = self.command()
        for name in path:
            target = target.commands[name]  # type: ignore[attr-defined]
        code = run_command(command, [*path, *_argv(target, args)])
        if code:
            sys.exit(code)


def _argv(command: click.Command, args: argparse.Namespace) -> list[str]:
    """Convert arguments that argparse has parsed to arguments for a click command."""
    import click

    options: list[str] = []
    positional: list[str] = []
    for param in command.params:
        value = getattr(args, _dest(param), None)
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


def _dest(param: click.Parameter) -> str:
    name = param.name or ""
    return _OLDER_NAMES.get(name, name)


def _is_remainder(param: click.Parameter) -> bool:
    # `app_handles` is no remainder here: the commands of older releases accept only one handle.
    return param.nargs == -1 and param.name != "app_handles"


_NAMES = {
    "AppStatus": "torchx_specs",
    "ArgOnceAction": "torchx.cli.argparse_util",
    "ComponentNotFoundException": "torchx_specs",
    "ComponentValidationException": "torchx_specs",
    "SubCommand": "torchx.cli.cmd_base",
    "AppHandleSubCommand": "torchx.cli.cmd_base",
    "TORCHX_CONTEXT_NAME": "torchx_specs",
    "TrackerBase": "torchx_specs.trackers.api",
    "Workspace": "torchx_specs",
    "build_trackers": "torchx_tracker.trackers",
    "dump": "torchx_runner.config.api",
    "get_builtin_source": "torchx_runner.components.finder",
    "get_components": "torchx_runner.components.finder",
    "get_configured_trackers": "torchx_runner.api",
    "get_default_scheduler_name": "torchx.schedulers._factories",
    "get_runner": "torchx_runner.api",
    "get_scheduler_factories": "torchx.schedulers._factories",
    "is_started": "torchx_specs",
    "load_sections": "torchx_runner.config.api",
    "make_app_handle": "torchx_specs",
    "none_throws": "torchx.util.types",
    "parse_app_handle": "torchx_specs",
    "Runner": "torchx_runner.api",
    "Stream": "torchx_specs.schedulers",
    "torchxconfig_list": "torchx.cli.argparse_util",
    "torchxconfig_run": "torchx.cli.argparse_util",
    "_Component": "torchx_runner.components.finder",
    "_prefix_line": "torchx_cli.logs.reader:prefix_line",
    "torchx_run_args_from_argparse": "torchx._legacy_cli",
}


def face(module_name: str, **commands: str) -> None:
    """Define the commands of the calling module, and forward its other names of older releases.

    Args:
        module_name: ``__name__`` of the calling module.
        commands: The name of each class, and the command that the class wraps.
    """
    for class_name, command in commands.items():
        attributes = {
            "__doc__": f"The command ``torchx {command}``.",
            "__module__": module_name,
            "command_name": command,
        }
        command_class = type(class_name, (WrappedCommand,), attributes)
        setattr(sys.modules[module_name], class_name, command_class)
    forward(
        module_name,
        "torchx._legacy_logs",
        "torchx_cli.logs.replicas",
        "torchx_cli.output.colors",
        "torchx_cli.launch.run_request",
        "torchx._legacy_cli",
        names=_NAMES,
    )
