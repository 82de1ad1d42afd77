"""Run 256 replicas of /bin/true on this machine and wait for their end."""

from __future__ import annotations

import time

from api import app, get_runner

with get_runner() as runner:
    job = app(1, 256, "/bin/true")
    begun = time.perf_counter()
    handle = runner.run(job, "local_cwd", {})
    status = runner.wait(handle)
    seconds = time.perf_counter() - begun
    assert status is not None and status.state.name == "SUCCEEDED", status
print({"seconds": seconds})
