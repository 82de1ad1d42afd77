"""Tests of lineage, and of checks of a tracker's arguments."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.trackers.checks import json_text, parent_run_filter
from torchx_kit.trackers.lineage import lineage_from_links, walk_lineage
from torchx_specs.trackers.api import (
    Lineage,
    LineageLink,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
)


class LinksOnly(TrackerBase):
    """A tracker that only knows the sources of runs."""

    def __init__(self, links: Iterable[LineageLink]) -> None:
        self.links = list(links)

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        return [TrackerSource(x.source_run_id, None) for x in self.links if x.run_id == run_id]

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        return [x.run_id for x in self.links if x.source_run_id == kwargs["parent_run_id"]]


LinksOnly.__abstractmethods__ = frozenset()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_walking_any_graph_ends_and_finds_the_lineage(edges: list[tuple[int, int]]) -> None:
    links = [LineageLink(str(run), str(source)) for run, source in edges]
    walked = walk_lineage(LinksOnly(links), "0")  # type: ignore[abstract]
    found = lineage_from_links("0", links)
    assert {s.source_run_id for s in walked.sources} == {s.source_run_id for s in found.sources}
    assert set(walked.descendants) == set(found.descendants)
    assert set(walked.links) == set(found.links)


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


def test_a_value_that_json_cannot_hold_is_an_error_with_its_key() -> None:
    assert json_text("loss", "run", 0.5) == "0.5"
    with pytest.raises(TrackerValueError, match=r"'model' of run 'r1' .* it is a object"):
        json_text("model", "r1", object())


def test_runs_are_filtered_by_their_parent_only() -> None:
    assert parent_run_filter({"parent_run_id": "a"}) == "a"
    assert parent_run_filter({}) is None
    with pytest.raises(TrackerValueError, match="filtered by name; valid filters: parent_run_id"):
        parent_run_filter({"name": "a"})
