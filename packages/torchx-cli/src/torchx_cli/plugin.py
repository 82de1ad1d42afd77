"""Registers the sub-commands of ``torchx`` by the hook ``torchx_commands``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CommandPlugin

_SUMMARIES = {
    "builtins": "List the installed components.",
    "cancel": "Cancel apps, and keep their records.",
    "configure": "Write a .torchxconfig with the options of schedulers.",
    "delete": "Cancel apps, and delete their records and logs.",
    "describe": "Show the definition of an app.",
    "lint": "Check the components in a file.",
    "list": "List the apps of a scheduler.",
    "log": "Show the logs of an app.",
    "plugins": "List installed plugins and their problems.",
    "run": "Run a component, or an app from a file.",
    "runopts": "Show the options of schedulers.",
    "status": "Show the status of an app.",
    "wait": "Wait until an app has ended or reached a state.",
    "workspace": "Manage images and copies of workspaces.",
}
# The other commands are the attribute "command" of a module with their name.
_FUNCTIONS = {
    "cancel": "cancel_and_delete:cancel",
    "delete": "cancel_and_delete:delete",
}


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield the sub-commands."""
    for name, summary in _SUMMARIES.items():
        function = _FUNCTIONS.get(name, f"{name}:command")
        yield CommandPlugin(name, f"torchx_cli.commands.{function}", summary)
