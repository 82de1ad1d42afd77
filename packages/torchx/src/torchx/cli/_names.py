"""The names that older releases exported from ``torchx.cli.cmd_*``."""

from __future__ import annotations

import sys

from torchx._forward import forward
from torchx.cli._wrapped import WrappedCommand

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
    "none_throws": "torchx._legacy_types",
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
