"""Everything an organisation can plug in: one hook a kind.

A plugin is a module with some of these functions, marked by :data:`hookimpl`, and named in the
entry-point group ``torchx`` of its distribution::

    # pyproject.toml
    [project.entry-points.torchx]
    acme = "acme_torchx.plugin"

Every hook yields small records (:mod:`torchx_specs.plugins.records`); name factories as
``"module:attribute"``, so that listing them imports nothing heavy. ``@hookimpl(tryfirst=True)``
says that a record deliberately overrides another plugin's of the same name; without it, two plugins
with one name are an error where that name is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchx_specs.plugins.markers import PROJECT, hookimpl, hookspec
from torchx_specs.plugins.records import (
    CommandPlugin,
    ComponentPlugin,
    EventHandlerPlugin,
    OptionsOnlySchedulerPlugin,
    ResourcePlugin,
    SchedulerPlugin,
    TrackerPlugin,
    WorkspacePlugin,
)

__all__ = [
    "HOOKS",
    "PROJECT",
    "CommandPlugin",
    "ComponentPlugin",
    "EventHandlerPlugin",
    "OptionsOnlySchedulerPlugin",
    "ResourcePlugin",
    "SchedulerPlugin",
    "TrackerPlugin",
    "WorkspacePlugin",
    "hookimpl",
    "hookspec",
]


@hookspec
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Schedulers, by the name that ``torchx run -s`` takes.

    ``factory(session_name, **scheduler_params)`` returns a
    :class:`torchx_specs.schedulers.Scheduler`::

        from torchx_specs.hookspecs import SchedulerPlugin, hookimpl

        @hookimpl
        def torchx_schedulers():
            yield SchedulerPlugin(
                "acme", "acme_torchx.scheduler:create_scheduler", summary="Acme's batch system"
            )
    """
    return ()


@hookspec
def torchx_named_resources() -> Iterable[ResourcePlugin]:
    """Named resources, by the name that ``resource(h=...)`` takes; ``factory()`` returns a new
    Resource.

    ::

        from torchx_specs import Resource
        from torchx_specs.hookspecs import ResourcePlugin, hookimpl

        def gpu_x2() -> Resource:
            return Resource(cpu=16, gpu=2, memMB=122_000)

        @hookimpl
        def torchx_named_resources():
            yield ResourcePlugin("gpu_x2", gpu_x2)
    """
    return ()


@hookspec
def torchx_components() -> Iterable[ComponentPlugin]:
    """Modules whose functions are components, added to those there are.

    ``acme_torchx/components/train.py`` with a function ``ddp`` becomes ``acme.train.ddp``::

        from torchx_specs.hookspecs import ComponentPlugin, hookimpl

        @hookimpl
        def torchx_components():
            yield ComponentPlugin("acme", "acme_torchx.components")
    """
    return ()


@hookspec
def torchx_trackers() -> Iterable[TrackerPlugin]:
    """Trackers, by the name used in ``[torchx:tracker]``.

    ``factory(config)`` returns a :class:`torchx_specs.trackers.TrackerBase`; ``config`` is the text
    from ``[tracker:NAME] config``, or None::

        from torchx_specs.hookspecs import TrackerPlugin, hookimpl

        @hookimpl
        def torchx_trackers():
            yield TrackerPlugin("acme", "acme_torchx.tracker:create")
    """
    return ()


@hookspec
def torchx_commands() -> Iterable[CommandPlugin]:
    """Sub-commands of ``torchx``; ``factory`` is a click command, imported only when it is called.

    ::

        from torchx_specs.hookspecs import CommandPlugin, hookimpl

        @hookimpl
        def torchx_commands():
            yield CommandPlugin(
                "quota", "acme_torchx.quota:command", summary="Shows what is left of your quota."
            )
    """
    return ()


@hookspec
def torchx_workspaces() -> Iterable[WorkspacePlugin]:
    """Builders of workspaces, by the name that the option ``workspace_type`` takes.

    ``factory()`` returns a :class:`torchx_specs.workspace.WorkspaceBuilder`::

        from torchx_specs.hookspecs import WorkspacePlugin, hookimpl

        @hookimpl
        def torchx_workspaces():
            yield WorkspacePlugin("nfs", "acme_torchx.nfs:NfsBuilder")
    """
    return ()


@hookspec
def torchx_event_handlers() -> Iterable[EventHandlerPlugin]:
    """Destinations of the runner's events; ``factory()`` returns a :class:`logging.Handler`.

    Each record that reaches it has one event as JSON for its message. The handler named ``null``
    receives every event::

        import logging
        from torchx_specs.hookspecs import EventHandlerPlugin, hookimpl

        @hookimpl
        def torchx_event_handlers():
            yield EventHandlerPlugin("null", logging.StreamHandler)
    """
    return ()


#: Every hook, with the record it yields.
HOOKS: dict[str, type[Any]] = {
    "torchx_schedulers": SchedulerPlugin,
    "torchx_named_resources": ResourcePlugin,
    "torchx_components": ComponentPlugin,
    "torchx_trackers": TrackerPlugin,
    "torchx_commands": CommandPlugin,
    "torchx_workspaces": WorkspacePlugin,
    "torchx_event_handlers": EventHandlerPlugin,
}
