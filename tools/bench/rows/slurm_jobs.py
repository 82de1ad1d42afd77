"""Submit COUNT jobs to Slurm one after another, or query them afterwards: slurm_jobs.py WHAT COUNT.

WHAT selects the measured action: ``submit``, ``list``, or ``status`` of each job. The script starts
a separate cluster. The jobs are held, so that running jobs do not slow down the measurement.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from api import app, get_runner

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
import slurm

what, count = sys.argv[1], int(sys.argv[2])

with tempfile.TemporaryDirectory(prefix="torchx-bench-", dir="/tmp") as name:
    cluster = Path(name)
    settings = f"MaxJobCount={2 * count + 1000}"
    # The peer's list and status need accounting.
    os.environ.update(slurm.start(cluster, nodes=2, settings=settings, accounting=True))
    os.chdir(cluster)  # Slurm and the jobs write their files here.
    os.environ["SBATCH_HOLD"] = "1"  # sbatch reads this variable on both sides.
    try:
        with get_runner() as runner:
            runner.scheduler_run_opts("slurm")  # Load the scheduler's modules before measuring.
            begun = time.perf_counter()
            handles = [runner.run(app(1, 1, "true", str(i)), "slurm") for i in range(count)]
            if what == "list":
                begun = time.perf_counter()
                assert len(runner.list("slurm")) >= count
            elif what == "status":
                begun = time.perf_counter()
                assert all(runner.status(handle) for handle in handles)
            seconds = time.perf_counter() - begun
    finally:
        slurm.stop(cluster)
print({"seconds": seconds, "jobs": len(set(handles))})
