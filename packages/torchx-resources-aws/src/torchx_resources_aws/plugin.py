"""Registers the AWS named resources."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import ResourcePlugin


@hookimpl
def torchx_named_resources() -> Iterable[ResourcePlugin]:
    """Return the named resources."""
    from torchx_resources_aws.resources import NAMED_RESOURCES

    return [ResourcePlugin(name, factory) for name, factory in NAMED_RESOURCES.items()]
