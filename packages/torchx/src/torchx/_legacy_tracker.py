"""Names of upstream's tracker modules that only older code uses."""

from __future__ import annotations

import time

#: Prefix of the MLflow tags that hold an artifact's metadata.
TAG_ARTIFACT_MD_PREFIX = "torchx.artifact.metadata"


def generate_filename() -> str:
    """Return the time in nanoseconds since 1970, as older trackers named their files."""
    return str(time.time_ns())
