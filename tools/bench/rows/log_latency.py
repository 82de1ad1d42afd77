"""Measure the delay until a line of a job is on the terminal: the median of 60 lines."""

from __future__ import annotations

import os
import pty
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

try:
    import torchx_specs  # noqa: F401

    LIMIT = 0.2
except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    LIMIT = float("inf")

LINES = 60
JOB = f"""
import time
for _ in range({LINES}):
    time.sleep(0.05)
    print("written", repr(time.time()), "end", flush=True)
"""

script = Path("writer.py").resolve()
script.write_text(JOB)
terminal, other = pty.openpty()
torchx = str(Path(sys.executable).with_name("torchx"))
process = subprocess.Popen(
    [torchx, "run", "--log", "-s", "local_cwd", "utils.sh", "--", sys.executable, str(script)],
    stdin=other,
    stdout=other,
    stderr=other,
)
os.close(other)
text = ""
delays = []
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:  # The command has ended and closed the terminal.
        break
    now = time.time()
    text += data.decode("utf-8", "replace")
    *lines, text = text.split("\n")
    delays += [
        now - float(found) for found in re.findall(r"written ([\d.]+) end", "\n".join(lines))
    ]
assert process.wait() == 0
assert len(delays) == LINES, len(delays)
median = statistics.median(delays)
assert median < LIMIT, f"the median is {median:.3f} s; at most {LIMIT} s is valid"
print({"seconds": median, "lines": LINES})
