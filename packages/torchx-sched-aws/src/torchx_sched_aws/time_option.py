"""The option ``time``, which sets the option of a service for the limit of the run time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchx_kit.times import limit_option, parse_limit
from torchx_specs.errors import RequestError


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
