"""Plugins: the records that they yield, and the manager that collects these records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.hookspecs import hookimpl as hookimpl
    from torchx_specs.plugins.catalog import Catalog as Catalog
    from torchx_specs.plugins.manager import PluginManager as PluginManager
    from torchx_specs.plugins.manager import PluginProblem as PluginProblem
    from torchx_specs.plugins.manager import get_manager as get_manager
    from torchx_specs.plugins.manager import set_manager as set_manager
    from torchx_specs.plugins.records import CommandPlugin as CommandPlugin
    from torchx_specs.plugins.records import ComponentPlugin as ComponentPlugin
    from torchx_specs.plugins.records import EventHandlerPlugin as EventHandlerPlugin
    from torchx_specs.plugins.records import Origin as Origin
    from torchx_specs.plugins.records import PrunerPlugin as PrunerPlugin
    from torchx_specs.plugins.records import ResourcePlugin as ResourcePlugin
    from torchx_specs.plugins.records import SchedulerPlugin as SchedulerPlugin
    from torchx_specs.plugins.records import TrackerPlugin as TrackerPlugin
    from torchx_specs.plugins.records import WorkspacePlugin as WorkspacePlugin

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_specs.hookspecs": "hookimpl",
        "torchx_specs.plugins.catalog": "Catalog",
        "torchx_specs.plugins.manager": "PluginManager PluginProblem get_manager set_manager",
        "torchx_specs.plugins.records": (
            "CommandPlugin ComponentPlugin EventHandlerPlugin Origin PrunerPlugin ResourcePlugin"
            " SchedulerPlugin TrackerPlugin WorkspacePlugin"
        ),
    },
)
