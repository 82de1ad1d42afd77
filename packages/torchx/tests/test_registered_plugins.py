"""Tests of plugins that ``@register`` registers in packages ``torchx_plugins.*``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from patience import PATIENCE
from torchx.plugins import (
    PluginRegistry,
    PluginType,
    RegistrationError,
    _registry,
    halve_mem_down_to,
    powers_of_two_gpus,
    registry,
    resource_tags,
)
from torchx.specs import Resource
from torchx_specs.plugins.manager import get_manager

Install = Callable[..., Path]

RESOURCES = """
from torchx.plugins import powers_of_two_gpus, register
from torchx.specs import Resource

@register.named_resource(name="my.res", aliases=["al"], fractionals=powers_of_two_gpus)
def my_res(fraction: float = 1.0) -> Resource:
    return Resource(cpu=int(8 * fraction), gpu=int(8 * fraction), memMB=int(1024 * fraction))
"""
SCHEDULERS = """
from torchx.plugins import register

@register.scheduler()
def foo(session_name, **kwargs):
    return ("foo", session_name, kwargs)

@register.tracker()
def wrong(config): ...
"""


@pytest.fixture
def plugins(install: Install) -> None:
    install(
        "acme-plugins",
        modules={
            "torchx_plugins/named_resources/r.py": RESOURCES,
            "torchx_plugins/schedulers/s.py": SCHEDULERS,
            "torchx_plugins/schedulers/reexports.py": (
                "from torchx_plugins.schedulers.s import foo"
            ),
            "torchx_plugins/schedulers/_private.py": "raise RuntimeError('never imported')",
            "torchx_plugins/schedulers/broken.py": "raise RuntimeError('x')",
            "torchx_plugins/schedulers/folder/deep.py": (
                "from torchx.plugins import register\n"
                "@register.scheduler(name='deep')\n"
                "def create(session_name, **kwargs): ...\n"
            ),
        },
    )


@pytest.mark.usefixtures("plugins")
def test_a_resource_has_aliases_and_fractions() -> None:
    from torchx.specs import resource

    assert set(registry().get(PluginType.NAMED_RESOURCE)) >= {
        "my.res",
        "al",
        "my.res_8",
        "my.res_4",
        "my.res_2",
        "my.res_1",
    }
    half = resource(h="my.res_4")
    assert (half.cpu, half.gpu, half.memMB) == (4, 4, 512)
    assert half.is_fractional()
    assert half.get_resource_name() == "my.res_4"
    assert not resource(h="my.res_8").is_fractional()
    assert resource(h="al").tags[resource_tags.RESOURCE_NAME] == "my.res"


@pytest.mark.usefixtures("plugins")
def test_registered_schedulers_are_offered_to_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_FOO", "7")
    catalog = get_manager().schedulers()
    assert "deep" in catalog
    name, session, kwargs = catalog["foo"].load()("session", a=1)
    assert (name, session, kwargs["foo"], kwargs["a"]) == ("foo", "session", "7", 1)


@pytest.mark.usefixtures("plugins")
def test_errors_are_recorded_and_become_problems() -> None:
    errors = registry().load_errors()
    assert RegistrationError("torchx_plugins.schedulers.broken", "RuntimeError: x") in errors
    wrong = next(e for e in errors if e.name == "wrong")
    assert "is a tracker but is under the scheduler namespace" in wrong.error
    get_manager().schedulers()
    shown = "\n".join(p.message for p in get_manager().problems)
    assert "torchx_plugins.schedulers.broken: RuntimeError: x" in shown


@pytest.mark.usefixtures("plugins")
def test_the_text_of_the_registry_is_yaml() -> None:
    report = yaml.safe_load(str(registry()))
    assert report["scheduler"] == [
        {"name": "deep", "module": "torchx_plugins.schedulers.folder.deep"},
        {"name": "foo", "module": "torchx_plugins.schedulers.s"},
    ]
    resources = report["named_resource"][0]
    assert resources["aliases"] == ["al"]
    assert resources["fractionals"] == ["my.res_1", "my.res_2", "my.res_4", "my.res_8"]
    assert report["tracker"][-1]["name"] == "wrong"
    assert report["errors"] == [
        {"module": "torchx_plugins.schedulers.broken", "error": "RuntimeError: x"}
    ]
    assert registry().to_dict()["scheduler"] == report["scheduler"]


@pytest.mark.parametrize(
    ("source", "names"),
    [("0", set()), ("1", {"foo"}), ("2", {"ep"}), ("3", {"foo", "ep"})],
)
def test_the_environment_variable_selects_the_sources(
    install: Install, monkeypatch: pytest.MonkeyPatch, source: str, names: set[str]
) -> None:
    install(
        "acme-plugins",
        {"torchx.schedulers": ["ep = acme:create"]},
        {"torchx_plugins/schedulers/s.py": SCHEDULERS},
    )
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", source)
    assert set(registry().get(PluginType.SCHEDULER)) == names
    assert set(get_manager().schedulers()) & {"foo", "ep"} == names


def test_an_invalid_source_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", "7")
    registry.cache_clear()
    with pytest.raises(ValueError, match="TORCHX_PLUGINS_SOURCE=7"):
        registry()
    registry.cache_clear()


def test_the_first_registration_of_a_name_wins(install: Install) -> None:
    install(
        "acme-plugins",
        modules={
            "torchx_plugins/schedulers/a.py": SCHEDULERS,
            "torchx_plugins/schedulers/b.py": SCHEDULERS.replace('("foo"', '("other"'),
        },
    )
    assert registry().get(PluginType.SCHEDULER)["foo"]("s")[0] == "foo"
    assert any(
        "already registered by torchx_plugins.schedulers.a" in e.error for e in registry().errors
    )


def test_a_resource_may_be_registered_twice(install: Install) -> None:
    install(
        "acme-plugins",
        modules={
            "torchx_plugins/named_resources/a.py": RESOURCES,
            "torchx_plugins/named_resources/b.py": RESOURCES,
        },
    )
    assert "my.res" in registry().get(PluginType.NAMED_RESOURCE)
    assert registry().errors == []


@pytest.mark.parametrize(
    ("gpus", "fractions"),
    [(8, {1.0: "8", 0.5: "4", 0.25: "2", 0.125: "1"}), (1, {1.0: "1"})],
)
def test_powers_of_two_gpus_halves_the_gpus(gpus: int, fractions: dict[float, str]) -> None:
    assert powers_of_two_gpus(Resource(1, gpus, 1024)) == fractions


@pytest.mark.parametrize("gpus", [0, 3, -1])
def test_powers_of_two_gpus_refuses_other_numbers(gpus: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        powers_of_two_gpus(Resource(1, gpus, 1024))


# The expected fractions were recorded from torchx-nightly 2026.10.26.
@pytest.mark.parametrize(
    ("gib", "minimum", "fractions"),
    [
        (8, 1, {1.0: "8", 0.5: "4", 0.25: "2", 0.125: "1"}),
        (8, 3, {1.0: "8", 0.5: "4"}),
        (6, 3, {1.0: "6", 0.5: "3"}),
        (6, 4, {1.0: "6"}),
        (5, 5, {1.0: "5"}),
    ],
)
def test_halve_mem_stops_at_the_minimum(
    gib: int, minimum: int, fractions: dict[float, str]
) -> None:
    assert halve_mem_down_to(minGiB=minimum)(Resource(1, 0, gib * 1024)) == fractions


@pytest.mark.parametrize(("memory", "minimum"), [(6 * 1024, 1), (6 * 1024, 2), (1000, 1), (0, 1)])
def test_halve_mem_refuses_other_amounts(memory: int, minimum: int) -> None:
    with pytest.raises(ValueError, match="GiB"):
        halve_mem_down_to(minGiB=minimum)(Resource(1, 0, memory))


def test_clear_makes_the_registry_search_again(install: Install) -> None:
    own = PluginRegistry()
    assert "late" not in own.get(PluginType.SCHEDULER)
    install("late-dist", {"torchx.schedulers": ["late = x:y"]})
    assert "late" not in own.get(PluginType.SCHEDULER)
    own.clear()
    assert "late" in own.get(PluginType.SCHEDULER)


@pytest.mark.usefixtures("plugins")
def test_a_thread_sees_all_plugins_while_another_one_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, both_search = _registry.entry_points, threading.Barrier(2)

    def meet(group: str) -> Any:
        both_search.wait(PATIENCE)
        return search(group)

    monkeypatch.setattr(_registry, "entry_points", meet)
    own = PluginRegistry()
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(own.get, PluginType.SCHEDULER) for _ in range(2)]
        for future in found:  # a thread that does not search must not keep the other one waiting
            future.add_done_callback(lambda _: both_search.abort())
        assert [{"foo", "deep"} <= set(future.result()) for future in found] == [True, True]


def test_a_plugin_may_ask_for_plugins_while_it_is_imported(install: Install) -> None:
    code = (
        "from torchx.plugins import PluginType, register, registry\n"
        "SEEN = sorted(registry().get(PluginType.SCHEDULER))\n"
        "@register.scheduler()\n"
        "def later(session_name, **kwargs): ...\n"
    )
    install("asks", modules={"torchx_plugins/schedulers/asks.py": code})
    assert "later" in registry().get(PluginType.SCHEDULER)
