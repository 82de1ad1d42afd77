"""The search for hooks in plugins; importing this module imports pluggy."""

from __future__ import annotations

from types import FunctionType, MethodType, ModuleType
from typing import Any

import pluggy


class HookSearch(pluggy.PluginManager):
    """A manager of pluggy that finds the hooks of a module fast.

    pluggy examines each name of a plugin with care that no descriptor is called. For the names in
    the modules of all plugins, this takes 4 ms. Reading a name of a module calls no descriptor.
    """

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """Return the options of a hook, or None if the name is not that of a hook."""
        kinds = (FunctionType, MethodType, staticmethod)
        if type(plugin) is ModuleType and not isinstance(vars(plugin).get(name), kinds):
            return None
        return super().parse_hookimpl_opts(plugin, name)
