"""Tests of plugins that are blocked after use, of deliberate groups, and of unknown options."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_specs import InvalidRunConfigException, runopts
from torchx_specs.hookspecs import ComponentPlugin, SchedulerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager
from torchx_specs.plugins.records import Origin


class Plugin:
    @hookimpl
    def torchx_schedulers(self) -> Any:
        yield SchedulerPlugin("acme", "acme:create")

    @hookimpl(tryfirst=True)
    def torchx_components(self) -> Any:
        yield ComponentPlugin("acme", "acme.components")


class Other:
    @hookimpl
    def torchx_components(self) -> Any:
        yield ComponentPlugin("other", "other")


@pytest.fixture
def manager() -> PluginManager:
    manager = PluginManager(discover=False)
    manager.register(Plugin(), "acme:main", Origin("Acme_Torchx", "1.0", "main"))
    manager.register(Other(), "other:main", Origin("other", "1.0", "plugin"))
    return manager


@pytest.mark.parametrize("name", ["acme-torchx", "Acme.Torchx", "main"])
def test_a_plugin_can_be_blocked_after_it_was_asked(manager: PluginManager, name: str) -> None:
    assert list(manager.schedulers()) == ["acme"]
    manager.block(["nobody"])
    assert list(manager.schedulers()) == ["acme"]
    manager.block([name])
    assert list(manager.schedulers()) == []
    assert [group.name for group in manager.components()] == ["other"]


def test_component_groups_know_whether_they_are_deliberate(manager: PluginManager) -> None:
    assert {g.name: g.deliberate for g in manager.components()} == {"acme": True, "other": False}


def test_unknown_options_are_refused_on_request() -> None:
    opts = runopts()
    opts.add("queue", type_=str, help="h")
    assert opts.cfg_from_str("quue=a,queue=b") == {"queue": "b"}
    with pytest.raises(InvalidRunConfigException, match="did you mean 'queue'") as error:
        opts.cfg_from_str("quue=a,queue=b", ignore_unknown=False)
    assert error.value.cfg_key == "quue"
    assert error.value.invalid_reason.startswith("Unknown run option `quue`")
