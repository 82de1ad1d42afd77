"""Registers our sub-commands, by the hook that anyone's arrive by."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CommandPlugin

_SUMMARIES = {
    "builtins": "List the components that are installed.",
    "cancel": "Cancel apps; their record and logs stay.",
    "configure": "Write a .torchxconfig with the schedulers' options.",
    "delete": "Cancel apps and remove them from their scheduler.",
    "describe": "Show the definition of an app.",
    "lint": "Check the components in a file.",
    "list": "List a scheduler's apps.",
    "log": "Show the logs of an app.",
    "plugins": "Show which plugins are there, and what is wrong with them.",
    "run": "Run a component, or an app from a file.",
    "runopts": "Show the options that schedulers take.",
    "status": "Show the status of an app.",
    "wait": "Wait until an app has ended, or reached a state.",
}


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    for name, summary in _SUMMARIES.items():
        yield CommandPlugin(name, f"torchx_cli.commands.{name}:command", summary)
