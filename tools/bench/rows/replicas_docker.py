"""Start 16 containers on a separate Docker Engine.

The script also prints the CPU time of the whole machine. Nearly all of it is the engine's work,
which is the same on both sides. So on a machine with two CPUs, starting the containers takes at
least half of the CPU time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import services
from api import get_runner, specs

REPLICAS = 16


def cpu_seconds() -> float:
    """Return the CPU time of the whole machine in seconds."""
    # proc_stat(5): user, nice, system, idle, iowait, irq, softirq, ...
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:8]]
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
    assert runner.list("local_docker") == []  # Load the client and connect before the measurement.
    os.sync()  # Write the files to the disk before the measurement.
    cpu_before, begun = cpu_seconds(), time.perf_counter()
    handle = runner.run(specs.AppDef(name="bench", roles=[role]), "local_docker", {})
    seconds, cpu = time.perf_counter() - begun, cpu_seconds() - cpu_before
    status = runner.status(handle)
    assert status is not None and status.state.name == "RUNNING", status
    assert len(status.roles[0].replicas) == REPLICAS
print({"seconds": seconds, "CPU seconds": round(cpu, 1)})
