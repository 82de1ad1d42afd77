"""Tests of resources, named resources and capabilities."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from torchx_specs import (
    NULL_RESOURCE,
    CapabilityKey,
    Resource,
    _named_resource_factories,
    get_named_resources,
    named_resources,
    resource,
)
from torchx_specs.errors import ConfigError, NamedResourceNotFoundError, PluginError
from torchx_specs.hookspecs import ResourcePlugin, hookimpl
from torchx_specs.model.resources import FRACTIONAL_TAG, NAME_TAG
from torchx_specs.named_resources_generic import NAMED_RESOURCES
from torchx_specs.plugins.manager import PluginManager, set_manager


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginManager]:
    monkeypatch.delenv("TORCHX_CUSTOM_NAMED_RESOURCES", raising=False)
    manager = PluginManager(discover=False)
    set_manager(manager)
    yield manager
    named_resources.reset()


def give(manager: PluginManager, tryfirst: bool = False, **factories: Any) -> None:
    class Plugin:
        @hookimpl(tryfirst=tryfirst)
        def torchx_named_resources(self) -> Iterator[ResourcePlugin]:
            for name, factory in factories.items():
                yield ResourcePlugin(name.replace("__", "."), factory)

    manager.register(Plugin(), f"plugin-{'-'.join(factories)}")


class TestResource:
    def test_repr(self) -> None:
        text = "Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})"
        assert repr(Resource(cpu=4, gpu=1, memMB=8192)) == text

    def test_copy_merges_capabilities(self) -> None:
        original = Resource(1, 2, 3, capabilities={"a": 1}, devices={"d": 1}, tags={"t": 1})
        new = Resource.copy(original, a=2, b=3)
        assert new == Resource(1, 2, 3, {"a": 2, "b": 3}, {"d": 1}, {"t": 1})
        new.devices["d"] = 2
        new.tags["t"] = 2
        assert original == Resource(1, 2, 3, {"a": 1}, {"d": 1}, {"t": 1})

    def test_name_and_fraction_are_tags(self) -> None:
        plain = Resource(1, 0, 1)
        assert plain.get_resource_name() is None
        assert plain.is_fractional() is False
        tagged = Resource(1, 0, 1, tags={NAME_TAG: "x", FRACTIONAL_TAG: True})
        assert tagged.get_resource_name() == "x"
        assert tagged.is_fractional() is True

    def test_null(self) -> None:
        assert Resource(cpu=-1, gpu=-1, memMB=-1) == NULL_RESOURCE


class TestResourceFunction:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({}, Resource(2, 0, 1024)),
            ({"cpu": 4, "gpu": 1, "memMB": 8192}, Resource(4, 1, 8192)),
            ({"gpu": 3}, Resource(2, 3, 1024)),
            ({"cpu": 0}, Resource(2, 0, 1024)),
            ({"h": ""}, Resource(2, 0, 1024)),
        ],
    )
    def test_raw_values(self, given: dict[str, Any], expected: Resource) -> None:
        assert resource(**given) == expected

    def test_a_name_wins(self) -> None:
        assert resource(cpu=1, gpu=0, memMB=1, h="gpu.small").gpu == 1

    @pytest.mark.parametrize("spelt", ["gpu.small", "GPU.Small", "gPu.SMALL"])
    def test_letter_case_does_not_matter(self, spelt: str) -> None:
        found = resource(h=spelt)
        assert (found.cpu, found.gpu, found.memMB) == (8, 1, 32768)
        assert found.get_resource_name() == "gpu.small"

    def test_letter_case_resolves_ambiguous_names(self) -> None:
        _named_resource_factories["Big"] = lambda: Resource(1, 0, 1)
        _named_resource_factories["big"] = lambda: Resource(2, 0, 1)
        assert (resource(h="Big").cpu, resource(h="big").cpu) == (1, 2)
        with pytest.raises(KeyError, match="ambiguous, it could be any of: Big, big"):
            resource(h="BIG")

    @pytest.mark.parametrize("name", ["NULL", "MISSING"])
    def test_null_names_return_the_null_resource(self, name: str) -> None:
        assert resource(h=name) is NULL_RESOURCE

    def test_the_nearest_name_is_offered(self) -> None:
        with pytest.raises(NamedResourceNotFoundError) as raised:
            resource(h="gpu.smal")
        text = "No named resource found for `gpu.smal`. Did you mean `gpu.small`?"
        assert str(raised.value) == text
        assert isinstance(raised.value, KeyError)

    def test_missing_distribution_is_named(self, no_plugins: PluginManager) -> None:
        class Kit:
            @hookimpl(trylast=True)
            def torchx_named_resources(self) -> list[ResourcePlugin]:
                return [ResourcePlugin("acme_*", "", install="pip install acme")]

        no_plugins.register(Kit(), "kit")
        with pytest.raises(KeyError, match=r"`acme_big`\. Run: pip install acme"):
            resource(h="acme_big")
        with pytest.raises(KeyError, match=r"Did you mean `gpu\.small`"):
            resource(h="gpu.smal")
        give(no_plugins, acme_small=lambda: Resource(1, 0, 1))
        with pytest.raises(KeyError, match="Did you mean"):
            resource(h="acme_smal")

    def test_or_all_names(self) -> None:
        with pytest.raises(KeyError, match=r"`zzz`\. Known names: cpu\.large, .*gpu\.xlarge"):
            resource(h="zzz")

    def test_or_some_of_many_names(self, no_plugins: PluginManager) -> None:
        give(no_plugins, **{f"acme__{number}": lambda: Resource(1, 0, 1) for number in range(30)})
        with pytest.raises(KeyError, match=r"Known names: acme\.0, .*xlarge, … \(all: torchx plug"):
            resource(h="zzz")

    def test_each_lookup_returns_a_new_resource(self) -> None:
        resource(h="gpu.small").capabilities["x"] = 1
        assert resource(h="gpu.small").capabilities == {}


@pytest.mark.parametrize(
    ("name", "cpu", "gpu", "mem_mb"),
    [
        ("gpu.small", 8, 1, 32 * 1024),
        ("gpu.medium", 16, 2, 64 * 1024),
        ("gpu.large", 32, 4, 128 * 1024),
        ("gpu.xlarge", 64, 8, 256 * 1024),
        ("cpu.nano", 1, 0, 512),
        ("cpu.micro", 1, 0, 1024),
        ("cpu.small", 1, 0, 2 * 1024),
        ("cpu.medium", 2, 0, 4 * 1024),
        ("cpu.large", 2, 0, 8 * 1024),
        ("cpu.xlarge", 8, 0, 32 * 1024),
    ],
)
def test_generic_resources(name: str, cpu: int, gpu: int, mem_mb: int) -> None:
    assert len(NAMED_RESOURCES) == 10
    assert resource(h=name) == Resource(cpu, gpu, mem_mb, tags={NAME_TAG: name})


class TestRegistry:
    def test_process_can_add_and_replace_factories(self) -> None:
        _named_resource_factories["gpu_x2"] = lambda: Resource(cpu=16, gpu=2, memMB=122_000)
        assert "gpu_x2" in named_resources
        assert "GPU_X2" in named_resources
        assert resource(h="gpu_x2").gpu == 2
        del _named_resource_factories["gpu_x2"]
        assert "gpu_x2" not in named_resources

    def test_a_factory_s_own_tag_stays(self) -> None:
        made = Resource(1, 0, 1, tags={NAME_TAG: "own"})
        _named_resource_factories["other"] = lambda: made
        assert resource(h="other") is made

    def test_the_factory_s_object_is_not_tagged(self) -> None:
        made = Resource(1, 0, 1)
        _named_resource_factories["shared"] = lambda: made
        assert resource(h="shared").get_resource_name() == "shared"
        assert made.tags == {}

    def test_as_a_mapping(self) -> None:
        names = list(named_resources)
        assert names[-2:] == ["NULL", "MISSING"]
        assert set(NAMED_RESOURCES) < set(names)
        assert len(named_resources) == len(names)
        assert dict(named_resources.items())["cpu.small"].memMB == 2048
        assert NULL_RESOURCE in named_resources.values()
        assert 3 not in named_resources

    def test_older_lookup_functions_warn(self) -> None:
        with pytest.warns(FutureWarning, match="resource"):
            assert named_resources["cpu.small"].cpu == 1
        with pytest.warns(FutureWarning, match="resource"):
            assert get_named_resources("CPU.small").cpu == 1
        with pytest.warns(FutureWarning), pytest.raises(KeyError):
            named_resources["nope"]

    def test_plugins(self, no_plugins: PluginManager) -> None:
        give(no_plugins, trn1=lambda: Resource(1, 0, 1))
        assert resource(h="TRN1").get_resource_name() == "trn1"
        assert "trn1" in list(named_resources)

    def test_plugin_can_name_its_factory_as_text(self, no_plugins: PluginManager) -> None:
        give(no_plugins, x="torchx_specs.resources.registry:resource", y="no_such_mod:f")
        assert resource(h="x").memMB == 1024
        with pytest.raises(PluginError, match="named resource 'y' of plugin-x-y"):
            resource(h="y")

    def test_plugin_replaces_a_generic_resource(self, no_plugins: PluginManager) -> None:
        give(no_plugins, gpu__small=lambda: Resource(1, 4, 1))
        assert resource(h="gpu.small").gpu == 4

    def test_two_plugins_with_one_name(self, no_plugins: PluginManager) -> None:
        give(no_plugins, same=lambda: Resource(1, 0, 1))
        give(no_plugins, same=lambda: Resource(2, 0, 1), other=lambda: Resource(3, 0, 1))
        with pytest.raises(PluginError, match="is given by plugin-same-other and plugin-same"):
            resource(h="same")
        assert resource(h="other").cpu == 3
        assert resource(h="cpu.small").cpu == 1

    def test_the_module_named_by_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = types.ModuleType("acme_resources")
        module.NAMED_RESOURCES = {  # type: ignore[attr-defined]
            "acme": lambda: Resource(7, 0, 1),
            "cpu.small": lambda: Resource(9, 0, 1),
        }
        monkeypatch.setitem(sys.modules, "acme_resources", module)
        assert "acme" not in named_resources
        monkeypatch.setenv("TORCHX_CUSTOM_NAMED_RESOURCES", "acme_resources")
        assert (resource(h="acme").cpu, resource(h="cpu.small").cpu) == (7, 9)

    @pytest.mark.parametrize("module", ["no_such_module_here", "json"])
    def test_a_module_without_resources(self, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHX_CUSTOM_NAMED_RESOURCES", module)
        with pytest.raises(ConfigError, match=f"TORCHX_CUSTOM_NAMED_RESOURCES={module}.*NAMED_RES"):
            resource(h="cpu.small")


class TestCapabilityKey:
    nics = CapabilityKey("example.com", "nics", int)

    def test_key(self) -> None:
        res = Resource(1, 0, 1)
        self.nics.set(res, 4)
        assert res.capabilities == {"example.com.nics": 4}
        assert self.nics.get(res) == 4

    def test_absent(self) -> None:
        assert self.nics.get(Resource(1, 0, 1)) is None
        assert self.nics.get(Resource(1, 0, 1), 2) == 2

    @pytest.mark.parametrize("value", ["4", True, 4.0, None])
    def test_another_type(self, value: Any) -> None:
        res = Resource(1, 0, 1)
        with pytest.raises(TypeError, match=r"`example\.com\.nics` expected `int`, got `"):
            self.nics.set(res, value)
        res.capabilities["example.com.nics"] = value
        with pytest.raises(TypeError):
            self.nics.get(res)

    def test_bool_is_not_accepted_as_int(self) -> None:
        flag = CapabilityKey("n", "flag", bool)
        res = Resource(1, 0, 1)
        flag.set(res, True)
        assert flag.get(res) is True
