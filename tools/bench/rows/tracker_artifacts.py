"""Read the 1,000 artifacts of a run."""

from __future__ import annotations

import time

import tracking

try:
    from torchx_tracker_fsspec import create
except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    from torchx.tracker.backend.fsspec import create

tracking.configure()
tracker = create(tracking.CONFIG)
for number in range(1000):
    tracker.add_artifact("run", f"model-{number}", f"/models/{number}.pt", {"epoch": number})
tracker = create(tracking.CONFIG)
begun = time.perf_counter()
artifacts = tracker.artifacts("run")
seconds = time.perf_counter() - begun
assert len(artifacts) == 1000
assert all(artifacts[f"model-{n}"].path == f"/models/{n}.pt" for n in range(1000))
print({"seconds": seconds})
