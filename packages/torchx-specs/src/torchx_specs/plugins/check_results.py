"""The result of a check of ``torchx doctor``."""

from __future__ import annotations

from typing import NamedTuple


class CheckResult(NamedTuple):
    """A check's result: the level ``ok``, ``warning`` or ``error``, a message and a remedy."""

    level: str
    message: str
    remedy: str = ""
