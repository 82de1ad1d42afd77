"""Reduces text to letters, digits and dashes."""

from __future__ import annotations

import re


def normalize_str(data: str) -> str:
    """Return the letters, digits and dashes of a text in lower case, without leading dashes."""
    return re.sub(r"[^a-z0-9-]", "", data.lower()).lstrip("-")
