"""Tests of the look-up of trackers, by names and configurations in a job's environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import torchx_kit.plugin
from torchx_kit.trackers import lookup
from torchx_specs.errors import TrackerError
from torchx_specs.hookspecs import TrackerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.trackers.api import TrackerBase


def memory(config: str | None) -> TrackerBase:
    raise AssertionError("no tracker is created")


class Plugin:
    @hookimpl
    def torchx_trackers(self) -> Iterator[TrackerPlugin]:
        yield TrackerPlugin("memory", memory)


@pytest.fixture(autouse=True)
def plugins() -> Iterator[None]:
    manager = PluginManager(discover=False)
    manager.register(Plugin(), "test")
    set_manager(manager)
    yield
    set_manager(None)


# The following tests split and look up names.


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("'a,b',c", ["a,b", "c"]),
        (" a , b ", ["a", "b"]),
        ("a,,b,", ["a", "b"]),
        ("b,a,b", ["b", "a"]),
    ],
)
def test_names_are_split_and_stripped(text: str, names: list[str]) -> None:
    assert lookup.tracker_names(text) == names


def test_a_tracker_is_found_by_hook() -> None:
    assert lookup.find_factory("memory") is memory


def test_a_tracker_is_found_by_module_and_attribute() -> None:
    factory = lookup.find_factory("collections:OrderedDict")
    assert factory.__name__ == "OrderedDict"


def test_an_unknown_tracker_is_named_with_the_nearest() -> None:
    with pytest.raises(TrackerError, match="unknown tracker 'memry'; did you mean 'memory'"):
        lookup.find_factory("memry")


def test_a_known_tracker_that_is_not_installed_names_its_distribution() -> None:
    manager = PluginManager(discover=False)
    manager.register(torchx_kit.plugin, "torchx-kit")
    set_manager(manager)
    message = "tracker 'fsspec' is not installed; run: pip install torchx-tracker-fsspec"
    with pytest.raises(TrackerError, match=message):
        lookup.find_factory("fsspec")


@pytest.mark.parametrize("name", ["no_such_module_x:create", "os:no_such_attribute"])
def test_a_path_that_does_not_import_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(TrackerError, match=name):
        lookup.find_factory(name)


# The following tests read configurations in environment variables.


def test_the_newer_spelling_wins() -> None:
    env = {"TORCHX_TRACKER_MY_T_CONFIG": "new", "TORCHX_TRACKER_MY-T_CONFIG": "old"}
    assert lookup.config_from_environ("my-t", env) == "new"


@pytest.mark.parametrize(
    ("tracker", "variable"),
    [
        ("mlflow", "TORCHX_TRACKER_MLFLOW_CONFIG"),
        ("my-t.2", "TORCHX_TRACKER_MY_T_2_CONFIG"),
        ("ü", "TORCHX_TRACKER___CONFIG"),
    ],
)
def test_the_variable_of_a_tracker_s_configuration(tracker: str, variable: str) -> None:
    assert lookup.tracker_config_env_var_name(tracker) == variable
