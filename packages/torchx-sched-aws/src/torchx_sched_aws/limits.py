"""Fields of requests that are not set, the option ``time``, and checks against SageMaker's limits.

The limits are in :mod:`torchx_sched_aws.model_limits`. Batch checks requests itself: the only
limits in its model are those of tags, which are the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_kit.times import limit_option, parse_limit
from torchx_sched_aws.model_limits import CREATE_TRAINING_JOB
from torchx_specs.errors import RequestError, nearest

# In the API, these are 0 or more, because a job with instance groups sets them elsewhere.
_LIMITS: dict[str, dict[str, Any]] = {
    **CREATE_TRAINING_JOB,
    "ResourceConfig.InstanceCount": {"min": 1},
    "ResourceConfig.VolumeSizeInGB": {"min": 1},
}
#: The pattern of locations in S3.
S3_PATTERN: str = CREATE_TRAINING_JOB["OutputDataConfig.S3OutputPath"]["pattern"]
# How errors name patterns.
_FORMS = {S3_PATTERN: "s3://BUCKET/PREFIX"}
#: The line ends that Java's pattern ``.`` does not match; the patterns of the API are Java's.
LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")


def without_unset(value: Any) -> Any:
    """Return nested data without fields whose value is None, an empty dict or an empty list.

    >>> without_unset({"a": 0, "b": {"c": None}, "d": [{"e": []}]})
    {'a': 0, 'd': [{}]}
    """
    if isinstance(value, list):
        return [without_unset(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {key: without_unset(item) for key, item in value.items()}
    return {key: item for key, item in fields.items() if item not in (None, {}, [])}


def maximum(path: str) -> int:
    """Return the largest number, length or count of the value at a place in the request."""
    return int(_LIMITS[path]["max"])


def is_valid(text: str, path: str) -> bool:
    """Return whether a text is valid at a place in the request."""
    return not list(limit_problems(text, path, path))


def limit_problems(value: object, path: str, name: str) -> Iterator[str]:
    """Yield why SageMaker does not accept a value or the values in it, one line each.

    Args:
        value: The value.
        path: The value's place in the request, such as ``ResourceConfig.VolumeSizeInGB``, ``Tags``,
            ``Tags[]``, ``Environment{name}`` or ``Environment{value}``.
        name: What messages call the value.
    """
    limit = _LIMITS.get(path, {})
    if isinstance(value, str):
        # Values of maps and tags may be secrets.
        shown = name if path.endswith(("{value}", ".Value")) else f"{name} '{value:.60}'"
        yield from text_problems(value, shown, limit)
    elif isinstance(value, int):
        yield from range_problems(value, name, limit)
    elif isinstance(value, (list, Mapping)):
        if len(value) > limit.get("max", len(value)):
            yield f"{len(value)} {name}; SageMaker allows {limit['max']}"
        if isinstance(value, list):
            for item in value:
                yield from limit_problems(item, f"{path}[]", name)
        elif f"{path}{{name}}" in _LIMITS:
            for key, item in value.items():
                yield from limit_problems(key, f"{path}{{name}}", f"{name}: the key")
                yield from limit_problems(item, f"{path}{{value}}", f"{name}['{key:.60}']")
        else:
            for key, item in value.items():
                yield from limit_problems(item, f"{path}.{key}", f"{name}: {key}")


def apply_time(opts: Any, native: str) -> None:
    """Set the option ``native``, in seconds, if only ``time`` is given.

    Args:
        opts: The scheduler's options.
        native: The option that the service has for the limit.
    """
    seconds = parse_limit(opts.time or "")
    if seconds is not None and opts[native] is None:
        setattr(opts, native, math.ceil(seconds))


def time_problems(opts: Any, native: str) -> Iterator[str]:
    """Yield the problem of the option ``time``; the arguments are those of :func:`apply_time`."""
    try:
        if opts.time and opts[native] != math.ceil(limit_option("time", opts.time)):
            yield f"option time={opts.time} contradicts {native}={opts[native]}; give one of them"
    except RequestError as e:
        yield from e.problems


def range_problems(value: int, name: str, limit: Mapping[str, int]) -> Iterator[str]:
    """Yield that a number is not between the limits ``min`` and ``max``, if so."""
    low, high = limit.get("min", value), limit.get("max", value)
    if not low <= value <= high:
        yield f"{name}={value} is not valid; it must be at least {low}" + (
            f" and at most {high}" if "max" in limit else ""
        )


def text_problems(text: str, shown: str, limit: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a text does not fit a limit.

    Args:
        text: The text.
        shown: What messages call the text.
        limit: The limit: the valid ``values``, the ``max`` length and the ``pattern``.
    """
    values = limit.get("values", (text,))
    if text not in values:
        hint = nearest(text, values)
        yield f"{shown} is not valid;{hint} valid values: {', '.join(values)}"
    if len(text) > limit.get("max", len(text)):
        yield f"{shown} has {len(text)} characters; SageMaker allows {limit['max']}"
    pattern = limit.get("pattern", "")
    if pattern and not re.fullmatch(pattern, text):
        if LINE_ENDS.search(text):
            yield f"{shown} contains a line end, which SageMaker does not allow"
        else:
            yield f"{shown} is not of the form {_FORMS.get(pattern, pattern)}"
