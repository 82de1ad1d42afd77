"""Trackers: lookup, inlined configurations and lineage."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs.errors import TrackerError
from torchx_specs.hookspecs import TrackerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.trackers import (
    Lineage,
    LineageLink,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
    lineage_from_links,
    lookup,
)
from torchx_specs.trackers.inline import from_data_uri, to_data_uri


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


# -- inlined configurations -------------------------------------------------------------------


@given(st.text())
def test_a_data_uri_holds_any_text(text: str) -> None:
    uri = to_data_uri(text)
    assert from_data_uri(uri) == text
    assert uri.isascii()
    assert uri.isprintable()
    assert not set(uri) & set(" $`'\"\\=;&|")


def test_base64_uris_are_read() -> None:
    body = base64.b64encode("a=é".encode()).decode()
    assert from_data_uri(f"data:text/plain;base64,{body}") == "a=é"


@pytest.mark.parametrize("uri", ["data:", "data:x", "data:,%zz", "data:;base64,a", "data:,%ff"])
def test_a_broken_data_uri_is_an_error_of_ours(uri: str) -> None:
    with pytest.raises(TrackerError, match="inlined configuration"):
        from_data_uri(uri)


# -- errors -----------------------------------------------------------------------------------


def test_exit_codes_and_builtin_bases() -> None:
    assert TrackerValueError("x").exit_code == 2
    assert TrackerBackendError("x").exit_code == 3
    assert isinstance(TrackerValueError("x"), ValueError)


# -- lineage ----------------------------------------------------------------------------------


def test_lineage_goes_both_ways_nearest_first() -> None:
    links = [
        LineageLink("grandchild", "child"),
        LineageLink("run", "parent", "model"),
        LineageLink("run", "parent"),
        LineageLink("parent", "grandparent"),
        LineageLink("child", "run", "weights"),
        LineageLink("stranger", "other"),
        LineageLink("run", "parent"),
    ]
    found = lineage_from_links("run", links)
    assert found.sources == [
        TrackerSource("parent", "model"),
        TrackerSource("parent", None),
        TrackerSource("grandparent", None),
    ]
    assert found.descendants == ["child", "grandchild"]
    assert len(found.links) == 5
    assert LineageLink("stranger", "other") not in found.links


def test_a_cycle_ends_where_it_closes() -> None:
    links = [LineageLink("a", "b"), LineageLink("b", "c"), LineageLink("c", "a")]
    found = lineage_from_links("a", links)
    assert [s.source_run_id for s in found.sources] == ["b", "c"]
    assert found.descendants == ["c", "b"]
    assert lineage_from_links("x", [LineageLink("x", "x")]).sources == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_the_lineage_in_any_graph_has_known_runs_only(edges: list[tuple[int, int]]) -> None:
    links = [LineageLink(str(run), str(source)) for run, source in edges]
    found = lineage_from_links("0", links)
    assert set(found.links) <= set(links)
    assert {s.source_run_id for s in found.sources} <= {link.source_run_id for link in links}
    assert set(found.descendants) <= {link.run_id for link in links}


def test_nothing_known_gives_an_empty_lineage() -> None:
    assert lineage_from_links("run", []) == Lineage("run", [], [], [])
