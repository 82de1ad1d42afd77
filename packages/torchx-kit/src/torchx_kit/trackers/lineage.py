"""Lineage for trackers whose store has no faster way than to query each run."""

from __future__ import annotations

from torchx_specs.trackers.api import Lineage, LineageLink, TrackerBase
from torchx_specs.trackers.lineage import lineage_from_links


def walk_lineage(tracker: TrackerBase, run_id: str) -> Lineage:
    """Return the lineage of a run by querying each ancestor and descendant.

    This is for trackers whose store has no faster way. An ancestor takes one call of ``sources``; a
    descendant takes one call of ``run_ids(parent_run_id=...)`` and one of ``sources``.
    """
    links: list[LineageLink] = []
    seen: set[str] = set()
    todo = [run_id]
    while todo:
        run = todo.pop()
        if run not in seen:
            seen.add(run)
            links_of_run = _links_of(tracker, run)
            links += links_of_run
            todo += [link.source_run_id for link in links_of_run]
    seen = set()
    todo = [run_id]
    while todo:
        run = todo.pop()
        if run not in seen:
            seen.add(run)
            for child in tracker.run_ids(parent_run_id=run):
                links += [link for link in _links_of(tracker, child) if link.source_run_id == run]
                todo.append(child)
    return lineage_from_links(run_id, links)


def _links_of(tracker: TrackerBase, run_id: str) -> list[LineageLink]:
    return [
        LineageLink(run_id, source.source_run_id, source.artifact_name)
        for source in tracker.sources(run_id)
    ]
