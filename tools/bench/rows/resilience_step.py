"""Measure `steps` and `should_stop` of torchx_resilience in eight ranks that share a folder.

The value is the processor time of 1,000 steps, which includes that of the thread that polls.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from typing import Any

from torchx_resilience import attempt

STEPS = int(sys.argv[1])
WORLD = 8


def measure(rank: int, barrier: Any, results: Any) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), TORCHX_ATTEMPT="0")
    run = attempt("resume")
    barrier.wait()
    begun = time.process_time()
    for _ in range(STEPS):
        pass
    empty = time.process_time() - begun
    begun = time.process_time()
    for step in run.steps(0, STEPS):
        if run.should_stop(step):
            raise AssertionError("no stop was requested")
    results[rank] = (time.process_time() - begun - empty) / STEPS
    barrier.wait()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results = context.Array("d", WORLD, lock=False)
    barrier = context.Barrier(WORLD)
    ranks = [context.Process(target=measure, args=(n, barrier, results)) for n in range(WORLD)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    print({"seconds": statistics.median(results) * 1000})
