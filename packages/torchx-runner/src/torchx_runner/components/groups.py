"""The groups of components that plugins register, for the runner and for shell completion.

Completion answers each press of TAB, so this module imports little.
"""

from __future__ import annotations

from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.plugins.records import ComponentPlugin


def component_groups() -> tuple[ComponentPlugin, ...]:
    """Return the registered groups of components.

    The built-in groups are left out if a plugin's group replaces them.
    """
    groups = tuple(group for group in plugin_manager().components() if group.module)
    if any(group.replaces_builtins for group in groups):
        groups = tuple(group for group in groups if not group.builtin)
    return groups


def name_prefix(group: str) -> str:
    """Return what the names of a group's components begin with, without the dot.

    The result is empty for a group whose name begins with ``_``.
    """
    return "" if group.startswith("_") else group
