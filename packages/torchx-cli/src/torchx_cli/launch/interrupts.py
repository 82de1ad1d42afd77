"""Logs that an app continues after its command was interrupted."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def say_what_continues(app_handle: str) -> None:
    """Log that an app continues after an interrupt, and how to reach the app."""
    logger.warning(
        "%s continues; run 'torchx cancel %s' to end it, 'torchx wait %s' to wait for it again, or"
        " 'torchx log --tail %s' to follow its logs",
        *[app_handle] * 4,
    )
