"""Reads the metadata and metrics that the elements of a sweep have recorded in trackers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from torchx_kit.trackers.runs import run_ids
from torchx_specs.errors import TorchXError, one_line

if TYPE_CHECKING:
    from torchx_specs.trackers.api import TrackerBase
    from torchx_sweep.store import ElementRecord

# How many runs are read at the same time if the tracker cannot read many runs by one query.
_READERS = 16

logger = logging.getLogger(__name__)


def read_metrics(
    elements: Sequence[ElementRecord],
    configs: Mapping[str, str | None],
    reserved: Iterable[str] = (),
) -> dict[int, dict[str, Any]]:
    """Return the values that elements have recorded, by number of the element.

    If several trackers have recorded the same name, or the name is reserved, the value's name
    becomes ``TRACKER.NAME``. A tracker that fails is skipped with a warning.

    Args:
        elements: The elements.
        configs: Maps the name of each configured tracker to its configuration, which may be None.
        reserved: The names of the other columns, such as the parameters.
    """
    by_tracker: dict[str, dict[int, Mapping[str, Any]]] = {}
    for tracker, config in configs.items():
        try:
            by_tracker[tracker] = _read_tracker(tracker, config, elements)
        except TorchXError as e:
            logger.warning("tracker '%s' is skipped: %s", tracker, one_line(e))
        except Exception as e:  # a third party's tracker may raise anything
            logger.warning("tracker '%s' is skipped: %s: %s", tracker, type(e).__name__, e)
    known = set(reserved)
    trackers_of: dict[str, set[str]] = {}
    for tracker, found in by_tracker.items():
        for values in found.values():
            for name in values:
                trackers_of.setdefault(name, set()).add(tracker)
    merged: dict[int, dict[str, Any]] = {}
    for tracker, found in by_tracker.items():
        for number, values in found.items():
            row = merged.setdefault(number, {})
            for name, value in values.items():
                is_unique = len(trackers_of[name]) == 1 and name not in known
                row[name if is_unique else f"{tracker}.{name}"] = value
    return merged


def _read_tracker(
    name: str, config: str | None, elements: Sequence[ElementRecord]
) -> dict[int, Mapping[str, Any]]:
    """Return the values that elements have recorded in a tracker, by number of the element."""
    from torchx_tracker.trackers import build_tracker

    tracker = build_tracker(name, config)
    remaining = {element.number: run_ids(element.handle) for element in elements if element.handle}
    found: dict[int, Mapping[str, Any]] = {}
    while remaining:
        first = {number: ids[0] for number, ids in remaining.items()}
        values = _read_runs(tracker, list(dict.fromkeys(first.values())))
        found.update((n, values[run_id]) for n, run_id in first.items() if values.get(run_id))
        remaining = {n: ids[1:] for n, ids in remaining.items() if n not in found and ids[1:]}
    return found


def _read_runs(tracker: TrackerBase, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the values of those runs that the tracker has, by id of the run."""
    many = getattr(tracker, "metadata_of_runs", None)
    if callable(many):
        found: Mapping[str, Mapping[str, Any]] = many(ids)
        return found
    existing = set(tracker.run_ids())
    ids = [run_id for run_id in ids if run_id in existing]
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(ids, pool.map(tracker.metadata, ids), strict=True))
