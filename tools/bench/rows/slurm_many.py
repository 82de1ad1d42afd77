"""Submit COUNT jobs that differ in an argument to a Slurm cluster: slurm_many.py COUNT.

The script starts a separate cluster. The jobs are held, so that running jobs do not slow down the
submission.
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

count = int(sys.argv[1])

with tempfile.TemporaryDirectory(prefix="torchx-bench-", dir="/tmp") as name:
    cluster = Path(name)
    settings = f"MaxArraySize={count + 1}\nMaxJobCount={2 * count + 1000}"
    os.environ.update(slurm.start(cluster, nodes=2, settings=settings))
    os.environ["SBATCH_HOLD"] = "1"  # sbatch reads this variable on both sides.
    try:
        with get_runner() as runner:
            begun = time.perf_counter()
            infos = [runner.dryrun(app(1, 1, "true", str(i)), "slurm") for i in range(count)]
            if hasattr(runner, "schedule_many"):
                handles = list(runner.schedule_many(infos, 8))
            else:
                handles = [runner.schedule(info) for info in infos]
            seconds = time.perf_counter() - begun
    finally:
        slurm.stop(cluster)
print({"seconds": seconds, "jobs": len(set(handles))})
