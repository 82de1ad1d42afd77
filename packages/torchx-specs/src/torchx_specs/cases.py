"""Conversion between ``snake_case`` and ``camelCase``."""

from __future__ import annotations


def snake_to_camel(name: str) -> str:
    """Return ``job_queue`` as ``jobQueue``; leading underscores stay."""
    stripped = name.lstrip("_")
    head, *rest = stripped.split("_")
    return name[: len(name) - len(stripped)] + head + "".join(p[:1].upper() + p[1:] for p in rest)


def camel_to_snake(name: str) -> str:
    """Return ``jobQueue`` as ``job_queue`` and ``efsID`` as ``efs_id``."""
    out: list[str] = []
    for i, c in enumerate(name):
        if c.isupper() and i and name[i - 1] != "_":
            after_lower = not name[i - 1].isupper()
            before_lower = i + 1 < len(name) and name[i + 1].islower()
            if after_lower or before_lower:
                out.append("_")
        out.append(c.lower())
    return "".join(out)
