"""Fixtures: a double of an API server, and the plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubernetes_api_double import api as api
from torchx_k8s_supervisor import plugin
from torchx_specs.plugins.manager import PluginManager, set_manager


@pytest.fixture(autouse=True)
def plugins() -> Iterator[PluginManager]:
    """A manager with the supervisor only."""
    manager = PluginManager(discover=False)
    manager.register(plugin, "k8s-supervisor")
    set_manager(manager)
    yield manager
    set_manager(None)
