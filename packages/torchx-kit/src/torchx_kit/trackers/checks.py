"""Checks and conversions of arguments that all trackers share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from torchx_specs.trackers.api import TrackerSource, TrackerValueError


def json_text(key: str, run_id: str, value: object) -> str:
    """Return a value as JSON.

    Args:
        key: Name of the value, for the error message.
        run_id: Id of the run, for the error message.
        value: The value.

    Raises:
        TrackerValueError: JSON cannot represent the value.
    """
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as e:
        raise TrackerValueError(
            f"'{key}' of run '{run_id}' cannot be recorded: {e}; it is a"
            f" {type(value).__qualname__}, JSON allows text, numbers, booleans, None, lists and"
            " dicts"
        ) from None


def check_run_id(run_id: str) -> None:
    """Raise a TrackerValueError if the id of a run is empty."""
    if not run_id:
        raise TrackerValueError("the run id is empty")


def check_source_id(run_id: str, source_id: str) -> None:
    """Raise a TrackerValueError if the id of a source is empty.

    Args:
        run_id: Id of the run that has the source, for the error message.
        source_id: Id of the source.
    """
    if not source_id:
        raise TrackerValueError(f"the id of a source of run '{run_id}' is empty")


def sources_with_artifact(
    sources: Iterable[TrackerSource], artifact_name: str | None
) -> list[TrackerSource]:
    """Return the sources with the given artifact; if its name is None, return all sources."""
    return [s for s in sources if artifact_name is None or s.artifact_name == artifact_name]


def parent_run_filter(filters: Mapping[str, str]) -> str | None:
    """Return the value of ``parent_run_id``, the only filter of ``run_ids``; None if it is unset.

    Raises:
        TrackerValueError: ``filters`` has another key.
    """
    unknown = sorted(filters.keys() - {"parent_run_id"})
    if unknown:
        raise TrackerValueError(
            f"runs cannot be filtered by {', '.join(unknown)}; valid filters: parent_run_id"
        )
    return filters.get("parent_run_id")
