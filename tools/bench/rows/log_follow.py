"""Follow a log of 200,000 lines, from ``run`` to the last line."""

from __future__ import annotations

import time

from api import app, get_runner

LINES = 200_000
FORMAT = "line %08.0f of a log that is long enough to be like one"

with get_runner() as runner:
    job = app(1, 1, "/usr/bin/seq", "-f", FORMAT, str(LINES))
    begun = time.perf_counter()
    handle = runner.run(job, "local_cwd", {})
    lines = list(runner.log_lines(handle, "role0", 0, should_tail=True))
    seconds = time.perf_counter() - begun
exact = sum(len(line.rstrip("\n")) == len(FORMAT % 0) for line in lines)
print({"seconds": seconds, "lines": len(lines), "whole": exact})
