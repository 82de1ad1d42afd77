"""16 containers, from run to all of them started; starts an engine of its own."""

from __future__ import annotations

import os
import time

import services
from api import get_runner, specs

REPLICAS = 16

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
    begun = time.perf_counter()
    handle = runner.run(specs.AppDef(name="bench", roles=[role]), "local_docker", {})
    seconds = time.perf_counter() - begun
    status = runner.status(handle)
    assert status is not None and status.state.name == "RUNNING", status
    assert len(status.roles[0].replicas) == REPLICAS
print({"seconds": seconds})
