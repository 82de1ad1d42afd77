"""Lineage: the graph of runs and their sources, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchx_specs.trackers.api import Lineage, LineageLink, TrackerBase, TrackerSource

LinksOf = Callable[[str], Iterable[LineageLink]]


def lineage_from_links(run_id: str, links: Iterable[LineageLink]) -> Lineage:
    """Return the lineage of a run; ``links`` may also connect unrelated runs.

    Every run is visited once, so cycles are harmless. The run is neither its own source nor its own
    descendant.

    >>> links = [LineageLink("child", "run"), LineageLink("run", "parent", "model")]
    >>> found = lineage_from_links("run", links)
    >>> found.sources, found.descendants
    ([TrackerSource(source_run_id='parent', artifact_name='model')], ['child'])

    Args:
        run_id: The run.
        links: Links in any order; duplicates are ignored.
    """
    up: dict[str, list[LineageLink]] = {}
    down: dict[str, list[LineageLink]] = {}
    for link in dict.fromkeys(links):
        up.setdefault(link.run_id, []).append(link)
        down.setdefault(link.source_run_id, []).append(link)
    return _lineage(run_id, lambda run: up.get(run, ()), lambda run: down.get(run, ()))


def _lineage(run_id: str, up: LinksOf, down: LinksOf) -> Lineage:
    """Return the lineage of a run.

    Args:
        run_id: The run.
        up: Returns the links of a run to its sources.
        down: Returns the links of a run to its descendants.
    """
    ancestry = _reach(run_id, up, forward=False)
    progeny = _reach(run_id, down, forward=True)
    sources = dict.fromkeys(
        (link.source_run_id, link.artifact_name)
        for link in ancestry
        if link.source_run_id != run_id
    )
    return Lineage(
        run_id,
        [TrackerSource(source, artifact) for source, artifact in sources],
        [run for run in dict.fromkeys(link.run_id for link in progeny) if run != run_id],
        list(dict.fromkeys([*ancestry, *progeny])),
    )


def _reach(run_id: str, links_of: LinksOf, *, forward: bool) -> list[LineageLink]:
    """Return all links on paths that begin at a run; the links nearest to the run come first."""
    reached: list[LineageLink] = []
    seen = {run_id}
    front = [run_id]
    while front:
        met = [link for run in front for link in links_of(run)]
        reached += met
        ends = [link.run_id if forward else link.source_run_id for link in met]
        front = [run for run in dict.fromkeys(ends) if run not in seen]
        seen.update(front)
    return reached


def walk_lineage(tracker: TrackerBase, run_id: str) -> Lineage:
    """Return the lineage of a run by querying each ancestor and descendant.

    Use this for trackers whose store has no faster query. Each ancestor costs one call of
    ``sources``; each descendant costs one call of ``run_ids(parent_run_id=...)`` and one of
    ``sources``.
    """

    def up(run: str) -> list[LineageLink]:
        return links_to_sources(run, tracker.sources(run))

    def down(run: str) -> list[LineageLink]:
        children = tracker.run_ids(parent_run_id=run)
        return [link for child in children for link in up(child) if link.source_run_id == run]

    return _lineage(run_id, up, down)


def links_to_sources(run_id: str, sources: Iterable[TrackerSource]) -> list[LineageLink]:
    """Return the links of a run to its sources."""
    return [LineageLink(run_id, source.source_run_id, source.artifact_name) for source in sources]
