"""Readable names of types."""

from __future__ import annotations

from typing import Any, get_args, get_origin


def get_type_name(tp: Any) -> str:
    """Return the name of a type, such as ``int`` or ``list[str]``."""
    if get_origin(tp) is not None or get_args(tp):
        return str(tp).replace("typing.", "")
    return str(getattr(tp, "__name__", tp))
