"""Reads the metadata and metrics that the elements of a sweep have recorded in trackers.

A job names its run by the handle in its variable ``TORCHX_JOB_ID``. The element's handle in the
database may be longer: it can contain the context of a Kubernetes cluster, the queue of AWS Batch
or the cluster of Slurm. So :func:`run_ids` returns several ids, which are queried one after the
other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import TorchXError, one_line
from torchx_specs.model.handles import make_app_handle, parse_app_handle

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


def run_ids(handle: str) -> list[str]:
    """Return the ids that the run of a job may have in a tracker; the first is the handle.

    >>> run_ids("slurm://torchx/12_3;main"), run_ids("local_cwd://torchx/train-x1")
    (['slurm://torchx/12_3;main', 'slurm://torchx/12_3'], ['local_cwd://torchx/train-x1'])
    """
    scheduler, session, app_id = parse_app_handle(handle)
    without_end = re.split("[;@]", app_id)[0]
    without_queue = without_end.rpartition(":")[2]
    ids = [make_app_handle(scheduler, session, part) for part in (without_end, without_queue)]
    return list(dict.fromkeys([handle, *ids]))


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
