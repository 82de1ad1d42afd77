"""The limit on the levels of dicts and lists in data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The largest number of levels of dicts and lists. Functions that call themselves for each level,
#: such as :func:`copy.deepcopy`, would otherwise exceed Python's limit on nested calls.
MAX_DEPTH = 100
#: The problem of data that is nested too deeply, for error messages.
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels, or contains itself"


def is_too_deep(data: object) -> bool:
    """Return True if data has more than :data:`MAX_DEPTH` levels, or contains itself."""
    if not data or isinstance(data, (str, int)):  # as most fields of an app are
        return False
    level: dict[int, Any] = {0: [data]}  # each object once: data may contain a list many times
    for _ in range(MAX_DEPTH + 1):
        level = {
            id(item): item
            for value in level.values()
            for item in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(item, (dict, list, tuple, Mapping))
        }
        if not level:
            return False
    return True
