"""Write to a run that other processes write to as well: many_writers.py CONFIG NUMBER TIMES FOLDER.

FOLDER/NUMBER holds the number of completed turns, so that a test knows how many turns a process had
completed when the test killed it.
"""

from __future__ import annotations

import os
import sys

from torchx_tracker.trackers import build_tracker

config, number, times, folder = sys.argv[1:]
tracker = build_tracker("fsspec", config)
print("ready", flush=True)
sys.stdin.readline()
done = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT)
for turn in range(int(times)):
    tracker.add_metadata("run", **{f"{number}-{turn}": "x" * 200})
    tracker.add_artifact("run", f"artifact-{number}-{turn}", f"/{number}/{turn}", {"turn": turn})
    if turn % 20 == 0:
        tracker.add_source("run", f"source-{turn}", f"{number}-{turn}")
    os.pwrite(done, b"%d" % (turn + 1), 0)
