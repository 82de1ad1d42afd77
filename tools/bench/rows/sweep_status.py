"""Query the status of a sweep with COUNT elements in the database: sweep_status.py COUNT."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

COMPONENT = '''
from torchx_specs import AppDef, Role


def true(n: int) -> AppDef:
    """Run true.

    Args:
        n: The number of the element.
    """
    return AppDef("true", [Role("main", "", entrypoint="true", args=[str(n)])])
'''
ROUNDS = 5

count = int(sys.argv[1])
with tempfile.TemporaryDirectory(prefix="torchx-bench-") as home:
    os.environ["TORCHX_HOME"] = home
    from torchx_runner import get_runner
    from torchx_sweep import ElementState, api
    from torchx_sweep.store import Store

    api.ensure_driver = lambda store, sweep_id: None  # type: ignore[assignment]
    Path("component.py").write_text(COMPONENT, "utf-8")
    with get_runner() as runner:
        plan = api.plan(runner, "component.py:true", grid={"n": range(count)}, confirmed=True)
        handle = api.submit(runner, plan)
    ended = api.results(handle)[: count // 2]
    for number, element in enumerate(ended):
        element.state = ElementState.SUCCEEDED if number % 100 else ElementState.FAILED
        element.ended = time.time()
    with Store() as store:
        store.update(plan.record.id, ended)
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        found = api.status(handle)
        seconds.append(time.perf_counter() - begun)
    assert sum(found.counts.values()) == count, found
    assert found.counts[ElementState.FAILED] == len(ended) // 100, found
megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print({"seconds": statistics.median(seconds), "MB with all parameters": megabytes})
