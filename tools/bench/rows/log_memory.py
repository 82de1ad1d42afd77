"""Measure the memory that following a log of 2 GB needs, beyond that of the idle process."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from api import app, get_runner

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000_000
LINE = "a line of a log that is long enough to be like one, and that comes again and again"


def memory(key: str) -> float:
    """Return a memory value of this process in MB; ru_maxrss would include the parent's memory.

    Args:
        key: The name of the value in /proc/self/status, such as ``VmRSS``.
    """
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


folder = tempfile.mkdtemp(prefix="torchx-bench-")
try:
    with get_runner() as runner:
        # Follow a short job first, so that all modules are loaded.
        cfg = {"log_dir": folder}
        handle = runner.run(app(1, 1, "/bin/echo", "hello"), "local_cwd", cfg)
        assert list(runner.log_lines(handle, "role0", 0, should_tail=True))
        idle = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # Reset VmHWM, the peak; see proc(5).
        job = app(1, 1, "/bin/sh", "-c", f"yes '{LINE}' | head -c {SIZE}")
        handle = runner.run(job, "local_cwd", cfg)
        size = sum(len(line) for line in runner.log_lines(handle, "role0", 0, should_tail=True))
        peak = memory("VmHWM")
    assert size > 0.98 * SIZE, size
finally:
    shutil.rmtree(folder, ignore_errors=True)
print({"megabytes": peak - idle, "idle": round(idle)})
