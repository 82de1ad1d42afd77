"""Trackers: lookup, and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchx_specs.errors import TrackerError
from torchx_specs.hookspecs import TrackerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.trackers import lookup
from torchx_specs.trackers.api import (
    TrackerBackendError,
    TrackerBase,
    TrackerValueError,
)


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


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), ("a", ["a"]), (" a , b ", ["a", "b"]), ("a,,b,", ["a", "b"]), ("b,a,b", ["b", "a"])],
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


@pytest.mark.parametrize("name", ["no_such_module_x:create", "os:no_such_attribute"])
def test_a_path_that_does_not_import_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(TrackerError, match=name):
        lookup.find_factory(name)


# -- environment ------------------------------------------------------------------------------


def test_the_newer_spelling_wins() -> None:
    env = {"TORCHX_TRACKER_MY_T_CONFIG": "new", "TORCHX_TRACKER_MY-T_CONFIG": "old"}
    assert lookup.config_from_environ("my-t", env) == "new"


# -- errors -----------------------------------------------------------------------------------


def test_exit_codes_and_builtin_bases() -> None:
    assert TrackerValueError("x").exit_code == 2
    assert TrackerBackendError("x").exit_code == 3
    assert isinstance(TrackerValueError("x"), ValueError)
