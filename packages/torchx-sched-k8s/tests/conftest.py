"""Fixtures: a double of an API server, and the plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubernetes_api_double import api as api
from torchx_kit import plugin
from torchx_specs.plugins.manager import PluginManager, set_manager


@pytest.fixture(autouse=True)
def plugins() -> Iterator[PluginManager]:
    """A manager with the install commands of the kit, and therefore without a supervisor."""
    manager = PluginManager(discover=False)
    manager.register(plugin, "kit")
    set_manager(manager)
    yield manager
    set_manager(None)
