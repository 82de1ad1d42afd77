"""Trackers: lookup, inlined configurations and lineage."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs.errors import TrackerError
from torchx_specs.hookspecs import TrackerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.trackers import (
    Lineage,
    LineageLink,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
    lineage_from_links,
    lookup,
)
from torchx_specs.trackers.inline import from_data_uri, to_data_uri


class MemoryTracker(TrackerBase):
    """A tracker in a dictionary."""

    def __init__(self, config: str | None = None) -> None:
        self.config = config
        self.links: dict[str, list[TrackerSource]] = {}

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None: ...

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        return {}

    def add_metadata(self, run_id: str, **kwargs: object) -> None: ...

    def metadata(self, run_id: str) -> Mapping[str, object]:
        return {}

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        self.links.setdefault(run_id, []).append(TrackerSource(source_id, artifact_name))

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        return list(self.links.get(run_id, []))

    def lineage(self, run_id: str) -> Lineage:
        return Lineage(run_id)

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        parent = kwargs["parent_run_id"]
        return [
            r for r, links in self.links.items() if any(x.source_run_id == parent for x in links)
        ]


def broken(config: str | None) -> TrackerBase:
    raise OSError("no route to host")


def inlining(config: str | None) -> TrackerBase:
    return MemoryTracker(config)


inlining.inline_config = lambda config: f"inlined {config}"  # type: ignore[attr-defined]


def not_a_tracker(config: str | None) -> object:
    return "a string"


class Plugin:
    @hookimpl
    def torchx_trackers(self) -> Iterator[TrackerPlugin]:
        yield TrackerPlugin("memory", MemoryTracker)
        yield TrackerPlugin("broken", broken)
        yield TrackerPlugin("inlining", inlining)
        yield TrackerPlugin("odd", not_a_tracker)


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    manager = PluginManager(discover=False)
    manager.register(Plugin(), "test")
    set_manager(manager)
    monkeypatch.delenv(lookup.ENV_TORCHX_TRACKER_STRICT, raising=False)
    monkeypatch.delenv("TORCHX_TRACKERS", raising=False)
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
    made = lookup.build_tracker("memory", "conf")
    assert isinstance(made, MemoryTracker)
    assert made.config == "conf"


def test_a_tracker_is_found_by_module_and_attribute() -> None:
    factory = lookup.find_factory("collections:OrderedDict")
    assert factory.__name__ == "OrderedDict"


def test_an_unknown_tracker_is_named_with_the_nearest() -> None:
    with pytest.raises(TrackerError, match="unknown tracker 'memry'; did you mean 'memory'"):
        lookup.build_tracker("memry", None)


@pytest.mark.parametrize("name", ["no_such_module_x:create", "os:no_such_attribute"])
def test_a_path_that_does_not_import_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(TrackerError, match=name):
        lookup.build_tracker(name, None)


def test_a_factory_that_raises_is_named_and_the_configuration_is_not() -> None:
    with pytest.raises(
        TrackerError, match="'broken' cannot be created: OSError: no route"
    ) as raised:
        lookup.build_tracker("broken", "secret=hush")
    assert "hush" not in str(raised.value)


def test_a_factory_that_makes_something_else_is_an_error() -> None:
    with pytest.raises(TrackerError, match="returned a str"):
        lookup.build_tracker("odd", None)


def test_what_cannot_be_made_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = lookup.build_trackers({"broken": None, "nope": None, "memory": None})
    assert [type(m) for m in made] == [MemoryTracker]
    assert ["'broken'" in r.getMessage() for r in caplog.records] == [True, False]
    assert "'nope'" in caplog.records[1].getMessage()


def test_strict_raises_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrackerError):
        lookup.build_trackers({"broken": None}, strict=True)
    monkeypatch.setenv(lookup.ENV_TORCHX_TRACKER_STRICT, "1")
    with pytest.raises(TrackerError):
        lookup.build_trackers({"broken": None})
    assert lookup.build_trackers({"broken": None}, strict=False) == []


# -- environment ------------------------------------------------------------------------------


def test_configurations_come_from_the_environment() -> None:
    env = {
        "TORCHX_TRACKERS": "fsspec, my-t,plain",
        "TORCHX_TRACKER_FSSPEC_CONFIG": "/etc/conf",
        "TORCHX_TRACKER_MY-T_CONFIG": "older spelling",
    }
    assert lookup.configs_from_environ(env) == {
        "fsspec": "/etc/conf",
        "my-t": "older spelling",
        "plain": None,
    }


def test_the_newer_spelling_wins() -> None:
    env = {"TORCHX_TRACKER_MY_T_CONFIG": "new", "TORCHX_TRACKER_MY-T_CONFIG": "old"}
    assert lookup.config_from_environ("my-t", env) == "new"


def test_no_trackers_no_variables() -> None:
    assert lookup.trackers_from_environ({}) == []


def test_a_configuration_in_a_file_is_inlined_if_the_tracker_supports_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert lookup.inline_config("inlining", "/x") == "inlined /x"
    assert lookup.inline_config("memory", "/y") == "/y"
    with caplog.at_level(logging.WARNING):
        assert lookup.inline_config("only_there", "/conf") == "/conf"
    assert "unknown tracker 'only_there'" in caplog.text


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
