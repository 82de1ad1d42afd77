"""Run a sweep with COUNT elements as an array of a Slurm cluster: slurm_array.py WHAT COUNT.

WHAT selects the measured action: ``dryrun`` checks all elements, and ``status`` queries the status
of all elements. The script starts a separate cluster, in which the jobs are held, and fails unless
sbatch is called exactly once.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
import slurm

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def true(n: int) -> AppDef:
    """Run true.

    Args:
        n: The number of the element.
    """
    resource = Resource(cpu=1, gpu=0, memMB=1)
    return AppDef("true", [Role("main", "", entrypoint="true", args=[str(n)], resource=resource)])
'''
SUBMIT_SECONDS = 600
ROUNDS = 3


def record_sbatch(folder: Path) -> Path:
    """Put a program sbatch first on PATH that records each call; return the file of records.

    The program then runs Slurm's sbatch.
    """
    calls = folder / "calls"
    calls.touch()
    program = folder / "programs" / "sbatch"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho call >> {calls}\nexec {shutil.which("sbatch")} "$@"\n')
    program.chmod(0o755)
    os.environ["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    return calls


what, count = sys.argv[1], int(sys.argv[2])
with tempfile.TemporaryDirectory(prefix="torchx-bench-", dir="/tmp") as name:
    cluster = Path(name) / "cluster"
    cluster.mkdir()
    settings = f"MaxArraySize={count + 1}\nMaxJobCount={2 * count + 1000}"
    os.environ.update(slurm.start(cluster, nodes=2, settings=settings))
    os.environ.update(SBATCH_HOLD="1", TORCHX_HOME=str(Path(name) / "home"))
    calls = record_sbatch(Path(name))
    try:
        from torchx_runner import get_runner
        from torchx_specs.model.status import AppState
        from torchx_sweep import api

        Path("component.py").write_text(COMPONENT, "utf-8")
        seconds = []
        with get_runner() as runner:
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                plan = api.plan(
                    runner,
                    "component.py:true",
                    scheduler="slurm",
                    grid={"n": range(count)},
                    max_parallel=8,
                )
                seconds.append(time.perf_counter() - begun)
            handle = api.submit(runner, plan)
            deadline = time.monotonic() + SUBMIT_SECONDS
            while any(not element.handle for element in api.results(handle)):
                if time.monotonic() > deadline:
                    raise SystemExit(f"not submitted: {api.status(handle)}")
                time.sleep(1)
            assert calls.read_text() == "call\n", calls.read_text()
            if what == "status":
                seconds = []
                for _ in range(ROUNDS):
                    begun = time.perf_counter()
                    found = api.status(handle)
                    seconds.append(time.perf_counter() - begun)
                    assert found.state in (AppState.PENDING, AppState.RUNNING), found
            api.cancel(handle)
            while api.status(handle).is_unfinished and time.monotonic() < deadline:
                time.sleep(1)
    finally:
        slurm.stop(cluster)
print({"seconds": statistics.median(seconds), "elements": count})
