"""Reads what runs have recorded in trackers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_kit.trackers.lookup import find_factory
from torchx_specs.errors import one_line
from torchx_specs.model.handles import make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from torchx_specs.trackers.api import TrackerBase

logger = logging.getLogger(__name__)

# How many runs are read at the same time if the tracker cannot read many runs by one query.
_READERS = 16


class Metric(NamedTuple):
    """The values of a metric in one run; ``last`` may be no number.

    Attributes:
        last: The newest value.
        least: The smallest value; None if only the newest one is known.
        largest: The largest value; None if only the newest one is known.
        number: The number of values.
    """

    last: Any
    least: float | None = None
    largest: float | None = None
    number: int = 1


def recorded(
    handles: Sequence[str],
    configs: Mapping[str, str | None],
    reserved: Iterable[str] = (),
    *,
    histories: bool = False,
) -> list[dict[str, Metric]]:
    """Return what runs have recorded, by the name of the metric.

    If several trackers have recorded the same name, or the name is reserved, the metric's name
    becomes ``TRACKER.NAME``. A tracker that fails is skipped with a warning.

    Args:
        handles: The runs.
        configs: Maps the name of each configured tracker to its configuration, which may be None.
        reserved: The names of the caller's other columns, such as parameters.
        histories: Also read all values of each metric.
    """
    by_tracker: dict[str, list[dict[str, Metric]]] = {}
    trackers_of: dict[str, set[str]] = {name: {""} for name in reserved}
    for tracker, config in configs.items():
        try:
            by_tracker[tracker] = _recorded(find_factory(tracker)(config), handles, histories)
        except Exception as e:  # a third party's tracker may raise anything
            message = f"{type(e).__name__}: {one_line(e)}"
            logger.warning("tracker '%s' is skipped: %s", tracker, message)
            continue
        for metrics in by_tracker[tracker]:
            for name in metrics:
                trackers_of.setdefault(name, set()).add(tracker)
    return [
        {
            name if len(trackers_of[name]) == 1 else f"{tracker}.{name}": metric
            for tracker, found in by_tracker.items()
            for name, metric in found[i].items()
        }
        for i in range(len(handles))
    ]


def metadata_of_runs(tracker: TrackerBase, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the metadata of runs, by id of the run; a bulk query leaves out unknown runs.

    A tracker with a method ``metadata_of_runs`` is asked once; others must have the runs.
    """
    many = getattr(tracker, "metadata_of_runs", None)
    if callable(many):
        found: Mapping[str, Mapping[str, Any]] = many(ids)
        return found
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(ids, pool.map(tracker.metadata, ids), strict=True))


def _recorded(
    tracker: TrackerBase, handles: Sequence[str], histories: bool
) -> list[dict[str, Metric]]:
    """Return what runs have recorded in one tracker."""
    found: list[dict[str, Metric]] = [{} for _ in handles]
    remaining = {i: run_ids(handle) for i, handle in enumerate(handles)}
    if not hasattr(tracker, "metadata_of_runs"):
        known = set(tracker.run_ids())
        remaining = {i: [one for one in ids if one in known] for i, ids in remaining.items()}
        remaining = {i: ids for i, ids in remaining.items() if ids}
    while remaining:
        first = {i: ids[0] for i, ids in remaining.items()}
        metadata = metadata_of_runs(tracker, list(dict.fromkeys(first.values())))
        existing = {i: run_id for i, run_id in first.items() if run_id in metadata}
        for i, run_id in existing.items():
            found[i] = {name: Metric(value) for name, value in metadata[run_id].items()}
        if histories:
            with ThreadPoolExecutor(_READERS) as pool:
                read = pool.map(tracker.history, existing.values())
                for i, history in zip(existing, read, strict=True):
                    found[i].update(_of_points(history))
        remaining = {i: ids[1:] for i, ids in remaining.items() if not found[i] and ids[1:]}
    return found


def _of_points(history: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Metric]:
    metrics = {}
    for name, points in history.items():
        values = [value for _, value in points]
        finite = [value for value in values if value == value]
        if values:
            least, largest = (min(finite), max(finite)) if finite else (None, None)
            metrics[name] = Metric(values[-1], least, largest, len(values))
    return metrics


def run_ids(handle: str) -> list[str]:
    """Return the ids that the run of a job may have in a tracker; the first is the handle.

    A job names its run by the handle in its variable ``TORCHX_JOB_ID``. The handle of a submitted
    app may be longer: it can contain the context of a Kubernetes cluster, the queue of AWS Batch or
    the cluster of Slurm.

    >>> run_ids("slurm://torchx/12_3;main"), run_ids("local_cwd://torchx/train-x1")
    (['slurm://torchx/12_3;main', 'slurm://torchx/12_3'], ['local_cwd://torchx/train-x1'])
    """
    scheduler, session, app_id = parse_app_handle(handle)
    without_end = re.split("[;@]", app_id)[0]
    without_queue = without_end.rpartition(":")[2]
    ids = [make_app_handle(scheduler, session, part) for part in (without_end, without_queue)]
    return list(dict.fromkeys([handle, *ids]))
