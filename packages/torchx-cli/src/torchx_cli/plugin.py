"""Registers the sub-commands of ``torchx``, and the checks of the installation."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CheckPlugin, CommandPlugin

_SUMMARIES = {
    "builtins": "List the installed components.",
    "cancel": "Cancel apps, and keep their records.",
    "components": "Create components from templates.",
    "config": "Show the configuration, and where each value is set.",
    "configure": "Write a .torchxconfig with the options of schedulers.",
    "cp": "Copy files from or to a replica of an app.",
    "delete": "Cancel apps, and delete their records and logs.",
    "describe": "Show the definition of an app.",
    "diff": "Show how two apps differ.",
    "doctor": "Check this installation and the schedulers.",
    "exec": "Run a command in a replica of an app.",
    "forward": "Forward ports of this machine to a replica of an app.",
    "history": "Show what you submitted from this machine.",
    "lint": "Check the components in a file.",
    "list": "List the apps of all schedulers, or of one.",
    "log": "Show the logs of an app.",
    "plugins": "List installed plugins and their problems.",
    "rerun": "Submit an app again.",
    "run": "Run a component, or an app from a file.",
    "runopts": "Show the options of schedulers.",
    "shell": "Open a shell in a replica of an app.",
    "status": "Show the status of an app.",
    "wait": "Wait until an app has ended or reached a state.",
    "watch": "Show when apps change their state, and notify when they end.",
    "workspace": "Manage images and copies of workspaces.",
}
# Any other command is the attribute "command" of a module with the name of the command.
_FUNCTIONS = {
    "cancel": "apps.cancel_and_delete:cancel",
    "cp": "inside.cp:command",
    "delete": "apps.cancel_and_delete:delete",
    "describe": "apps.describe:command",
    "diff": "submissions.diff:command",
    "exec": "inside.exec:exec_command",
    "forward": "inside.forward:command",
    "history": "submissions.history:command",
    "list": "apps.list:command",
    "log": "apps.log:command",
    "rerun": "submissions.rerun:command",
    "shell": "inside.exec:shell_command",
    "status": "apps.status:command",
    "wait": "apps.wait:command",
}


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield the sub-commands."""
    for name, summary in _SUMMARIES.items():
        function = _FUNCTIONS.get(name, f"{name}:command")
        yield CommandPlugin(name, f"torchx_cli.commands.{function}", summary)


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of the installation and of the configuration, for ``torchx doctor``."""
    for name in ("python", "installation", "plugins", "configuration"):
        yield CheckPlugin(f"torchx:{name}", f"torchx_cli.doctor.own_checks:check_{name}")
