"""Registers everything that Acme adds to TorchX."""

from collections.abc import Iterator

from torchx_specs.hookspecs import (
    CommandPlugin,
    ComponentPlugin,
    ResourcePlugin,
    SchedulerPlugin,
    TrackerPlugin,
    hookimpl,
)


@hookimpl
def torchx_schedulers() -> Iterator[SchedulerPlugin]:
    """Yield the scheduler ``acme``."""
    yield SchedulerPlugin(
        "acme", "acme_torchx.scheduler:create_scheduler", summary="Acme's job table"
    )


@hookimpl
def torchx_named_resources() -> Iterator[ResourcePlugin]:
    """Yield Acme's machines."""
    for name in ("small", "gpu"):
        yield ResourcePlugin(f"acme.{name}", f"acme_torchx.resources:{name}")


# `tryfirst`: utils.python of this package replaces utils.python of torchx-components.
@hookimpl(tryfirst=True)
def torchx_components() -> Iterator[ComponentPlugin]:
    """Yield the group ``acme``, and Acme's own ``utils.python``."""
    yield ComponentPlugin("acme", "acme_torchx.components")
    yield ComponentPlugin("utils", "acme_torchx.overrides")


@hookimpl
def torchx_trackers() -> Iterator[TrackerPlugin]:
    """Yield the tracker ``acme``."""
    yield TrackerPlugin("acme", "acme_torchx.tracker:create")


@hookimpl
def torchx_commands() -> Iterator[CommandPlugin]:
    """Yield the command ``torchx queues``."""
    yield CommandPlugin(
        "queues", "acme_torchx.queues:command", summary="Show Acme's queues and their jobs."
    )
