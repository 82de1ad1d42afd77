"""Names in tracker modules that only clients of older TorchX releases use."""

from __future__ import annotations

import time

#: Prefix of the MLflow tags that hold an artifact's metadata.
TAG_ARTIFACT_MD_PREFIX = "torchx.artifact.metadata"


def generate_filename() -> str:
    """Return a new file name in the form of older trackers: the nanoseconds since 1970."""
    return str(time.time_ns())
