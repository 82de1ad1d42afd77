"""Record one value of metadata from inside a job."""

from __future__ import annotations

import os

import tracking

tracking.configure()
os.environ.update(
    TORCHX_JOB_ID="local_cwd://bench/job",
    TORCHX_TRACKERS="fsspec",
    TORCHX_TRACKER_FSSPEC_CONFIG=tracking.CONFIG,
)

try:
    import torchx_tracker as tracker
except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    from torchx import tracker

tracker.app_run_from_env().add_metadata(loss=0.5)
assert sum(len(files) for _, _, files in os.walk(tracking.ROOT)) == 1
