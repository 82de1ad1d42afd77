"""List 10,000 runs, or only the runs that have one parent: tracker_runs.py all|PARENT."""

from __future__ import annotations

import base64
import os
import sys
import time

import tracking

try:
    from torchx_tracker_fsspec import create
except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    from torchx.tracker.backend.fsspec import create

RUNS = 10_000
PARENTS = 10


def folder(run_id: str) -> str:
    return base64.b32encode(run_id.encode()).decode()


tracking.configure()
for number in range(RUNS):
    sources = os.path.join(tracking.ROOT, folder(f"local_cwd://bench/run-{number:05}"), "sources")
    os.makedirs(sources)
    with open(os.path.join(sources, folder(f"parent-{number % PARENTS}")), "w") as file:
        file.write("\n")
tracker = create(tracking.CONFIG)
filters = {} if sys.argv[1] == "all" else {"parent_run_id": sys.argv[1]}
begun = time.perf_counter()
runs = list(tracker.run_ids(**filters))
seconds = time.perf_counter() - begun
assert len(set(runs)) == len(runs) == (RUNS // PARENTS if filters else RUNS), len(runs)
print({"seconds": seconds})
