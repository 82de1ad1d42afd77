"""Returns times in seconds since the epoch."""

from __future__ import annotations

import time


def get_past_epoch_time(days: int) -> int:
    """Return the time ``days`` days ago, in seconds since the epoch."""
    return int(time.time()) - days * 24 * 60 * 60
