"""Checks of arguments that all trackers share."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torchx_specs.trackers.api import TrackerValueError


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
