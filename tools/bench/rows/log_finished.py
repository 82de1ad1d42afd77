"""Read the 200,000 log lines of a finished job."""

from __future__ import annotations

import time

from api import app, get_runner

LINES = 200_000
FORMAT = "line %08.0f of a log that is long enough to be like one"

with get_runner() as runner:
    handle = runner.run(app(1, 1, "/usr/bin/seq", "-f", FORMAT, str(LINES)), "local_cwd", {})
    runner.wait(handle, wait_interval=0.1)
    begun = time.perf_counter()
    lines = list(runner.log_lines(handle, "role0", 0))
    seconds = time.perf_counter() - begun
whole = sum(line.rstrip("\n") == FORMAT % number for number, line in enumerate(lines, 1))
exact = sum(len(line.rstrip("\n")) == len(FORMAT % 0) for line in lines)
print({"seconds": seconds, "lines": len(lines), "whole": exact, "in order": whole})
