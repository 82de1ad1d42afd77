"""Names that the trackers' modules had and nothing here uses."""

from __future__ import annotations

import time

#: Prefix of the MLflow tags that hold an artifact's metadata.
TAG_ARTIFACT_MD_PREFIX = "torchx.artifact.metadata"


def generate_filename() -> str:
    """Returns the time, in nanoseconds since the epoch, as the older tracker named its files."""
    return str(time.time_ns())
