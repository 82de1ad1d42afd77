"""Conversion between ``snake_case`` and ``camelCase``."""

from __future__ import annotations

import re


def snake_to_camel(name: str) -> str:
    """Return ``job_queue`` as ``jobQueue``; leading underscores stay."""
    stripped = name.lstrip("_")
    head, *rest = stripped.split("_")
    return name[: len(name) - len(stripped)] + head + "".join(p[:1].upper() + p[1:] for p in rest)


def camel_to_snake(name: str) -> str:
    """Return ``jobQueue`` as ``job_queue`` and ``efsID`` as ``efs_id``."""
    word_starts = r"(?<=[^A-Z_])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(word_starts, "_", name).lower()
