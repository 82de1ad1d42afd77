"""Registers the sub-commands of ``torchx``, and the checks of the installation."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CheckPlugin, CommandPlugin

# The function in `torchx_cli.commands`, and the summary.
_COMMANDS = {
    "builtins": ("components:builtins", "List the installed components."),
    "cancel": ("apps.cancel_and_delete:cancel", "Cancel apps, and keep their records."),
    "components": ("components:command", "Create components from templates."),
    "config": ("config:command", "Show the configuration, and where each value is set."),
    "configure": ("config:configure", "Write a .torchxconfig with the options of schedulers."),
    "cp": ("inside.cp:command", "Copy files from or to a replica of an app."),
    "delete": ("apps.cancel_and_delete:delete", "Cancel apps, and delete their records and logs."),
    "describe": ("apps.describe:command", "Show the definition of an app."),
    "compare": (
        "submissions.compare:command",
        "Show what differs between apps, and their metrics.",
    ),
    "diff": ("submissions.diff:command", "Show how two apps differ."),
    "doctor": ("doctor:command", "Check this installation and the schedulers."),
    "exec": ("inside.exec:exec_command", "Run a command in a replica of an app."),
    "forward": ("inside.forward:command", "Forward ports of this machine to a replica of an app."),
    "history": ("submissions.history:command", "Show what you submitted from this machine."),
    "lint": ("lint:command", "Check the components in a file."),
    "list": ("apps.list:command", "List the apps of all schedulers, or of one."),
    "log": ("apps.log:command", "Show the logs of an app."),
    "plugins": ("plugins:command", "List installed plugins and their problems."),
    "rerun": ("submissions.rerun:command", "Submit an app again."),
    "run": ("run:command", "Run a script, a command or a component."),
    "runopts": ("runopts:command", "Show the options of schedulers."),
    "shell": ("inside.exec:shell_command", "Open a shell in a replica of an app."),
    "status": ("apps.status:command", "Show the status of an app."),
    "wait": ("apps.wait:command", "Wait until an app has ended or reached a state."),
    "watch": ("watch:command", "Show when apps change their state, and notify when they end."),
    "workspace": ("workspace:command", "Manage images and copies of workspaces."),
}


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield the sub-commands."""
    for name, (function, summary) in _COMMANDS.items():
        yield CommandPlugin(name, f"torchx_cli.commands.{function}", summary)


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of the installation and of the configuration, for ``torchx doctor``."""
    for name in ("python", "installation", "plugins", "configuration"):
        yield CheckPlugin(f"torchx:{name}", f"torchx_cli.doctor.own_checks:check_{name}")
