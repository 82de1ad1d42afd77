"""Registers the plugins of older entry-point groups and of ``torchx_plugins`` packages.

Plugins in the group ``torchx.components`` hide the built-in components, unless an entry point in
this group has the value ``torchx.components``. All other plugins add schedulers, named resources,
trackers, event handlers and commands, and replace the built-in ones of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from torchx_specs.hookspecs import (
    CommandPlugin,
    ComponentPlugin,
    EventHandlerPlugin,
    OptionsOnlySchedulerPlugin,
    ResourcePlugin,
    SchedulerPlugin,
    TrackerPlugin,
    hookimpl,
)
from torchx_specs.plugins.entry_points import EntryPoint, entry_points
from torchx_specs.plugins.records import Origin, Record

R = TypeVar("R", bound="Record[Any]")


def _origin(ep: EntryPoint) -> Origin:
    return Origin(ep.distribution, ep.version, ep.name)


def _older(
    group: str,
    make: type[R],
    create: Callable[..., Any] | None = None,
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Iterator[R]:
    """Yield a record for each entry point of a group, then for each ``@register`` plugin.

    Args:
        group: The entry-point group, such as ``torchx.schedulers``.
        make: The class of the records.
        create: Called with an entry point and the arguments of the factory; None means
            ``call_older``.
        adapt: Adapts the factory of a ``@register`` plugin; None leaves the factory as it is.

    Raises:
        PluginError: A module of a ``torchx_plugins`` package could not be loaded.
    """
    from torchx.bridges import factories

    create = create or factories.call_older
    for ep in factories.older_entry_points(group):
        yield make(ep.name, partial(create, ep), origin=_origin(ep), overrides_builtins=True)
    for name, given, origin in factories.namespace_plugins(group):
        factory = adapt(given) if adapt else given
        yield make(name, factory, origin=origin, overrides_builtins=True)


@hookimpl(trylast=True)
def torchx_schedulers() -> Iterator[SchedulerPlugin]:
    """Register plugins of ``torchx.schedulers`` and ``torchx.schedulers.orchestrator``.

    A scheduler of the group ``torchx.schedulers.orchestrator`` has a section in ``.torchxconfig``,
    but cannot run apps.
    """
    from torchx.bridges.factories import (
        create_older_scheduler,
        older_entry_points,
        older_scheduler_factory,
    )

    for ep in older_entry_points("torchx.schedulers.orchestrator"):
        create = partial(create_older_scheduler, ep)
        yield OptionsOnlySchedulerPlugin(ep.name, create, origin=_origin(ep))
    yield from _older(
        "torchx.schedulers", SchedulerPlugin, create_older_scheduler, older_scheduler_factory
    )


@hookimpl(trylast=True)
def torchx_named_resources() -> Iterator[ResourcePlugin]:
    """Register the plugins of the group ``torchx.named_resources``."""
    yield from _older("torchx.named_resources", ResourcePlugin)


@hookimpl(trylast=True)
def torchx_trackers() -> Iterator[TrackerPlugin]:
    """Register the plugins of the group ``torchx.tracker``."""
    yield from _older("torchx.tracker", TrackerPlugin)


@hookimpl(trylast=True)
def torchx_event_handlers() -> Iterator[EventHandlerPlugin]:
    """Register the plugins of the group ``torchx.event_handlers``."""
    yield from _older("torchx.event_handlers", EventHandlerPlugin)


@hookimpl(trylast=True)
def torchx_components() -> Iterator[ComponentPlugin]:
    """Register plugins of ``torchx.components``, ``torchx.file`` and ``torchx.version``.

    ``torchx.file`` reads component files, and ``torchx.version`` names the default image.
    """
    if entry_points("torchx.file"):
        from torchx.bridges.factories import read_by_plugin

        yield ComponentPlugin("", read_file=read_by_plugin)
    if entry_points("torchx.version"):
        import torchx.version  # sets the default image, before the components are imported
    for ep in entry_points("torchx.components"):
        from torchx.bridges.factories import component_module

        yield ComponentPlugin(
            ep.name, component_module(ep), replaces_builtins=True, origin=_origin(ep)
        )


@hookimpl(trylast=True)
def torchx_commands() -> Iterator[CommandPlugin]:
    """Register the plugins of the group ``torchx.cli.cmds``: argparse sub-commands."""
    for ep in entry_points("torchx.cli.cmds"):
        from torchx.bridges.commands import click_command, summary

        yield CommandPlugin(
            ep.name,
            partial(click_command, ep),
            partial(summary, ep),
            origin=_origin(ep),
            overrides_builtins=True,
        )
