"""Text helpers."""

from __future__ import annotations

import re


def normalize_str(data: str) -> str:
    """Returns ``data`` in lower case with only ``a-z``, ``0-9`` and ``-``, without leading
    dashes.
    """
    return re.sub(r"[^a-z0-9-]", "", data.lower()).lstrip("-")
