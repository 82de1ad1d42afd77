"""16 containers, from run to all of them started; starts an engine of its own.

Tells beside the time how long the machine's processors were busy meanwhile: nearly all of that is
the engine's work, the same on both sides, and a machine with two of them takes half of it at least.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import services
from api import get_runner, specs

REPLICAS = 16


def busy() -> float:
    """For how long the machine's processors were busy, all together, in seconds."""
    # proc_stat(5): user, nice, system, idle, iowait, irq, softirq, ...
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:8]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


role = specs.Role(
    name="role",
    image=services.BUSYBOX,
    entrypoint="sleep",
    args=["600"],
    num_replicas=REPLICAS,
    resource=specs.Resource(cpu=0, gpu=0, memMB=64),
)
with services.engine(), get_runner() as runner:
    assert runner.list("local_docker") == []  # the client is loaded, and has met the engine
    os.sync()  # nor is what was written to get here to be written while the clock runs
    was_busy, begun = busy(), time.perf_counter()
    handle = runner.run(specs.AppDef(name="bench", roles=[role]), "local_docker", {})
    seconds, processors = time.perf_counter() - begun, busy() - was_busy
    status = runner.status(handle)
    assert status is not None and status.state.name == "RUNNING", status
    assert len(status.roles[0].replicas) == REPLICAS
print({"seconds": seconds, "CPU seconds": round(processors, 1)})
