"""Measure the processor time that 64 progress bars on a terminal take in each second.

Each bar has five states a second, as the readers of log files yield them. Reading the files is not
measured.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from torchx_cli.logs.reader import LogReader
from torchx_specs.schedulers.log_items import Block, PartialLine
from torchx_specs.schedulers.logs import LogQuery

BARS = 64
SECONDS = 10
STATES_A_SECOND = 5

os.environ["TERM"] = "xterm"
terminal, other = pty.openpty()
fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
written, path = tempfile.mkstemp()
screen = subprocess.Popen(["cat"], stdin=terminal, stdout=written, stderr=subprocess.DEVNULL)
os.close(terminal)
replicas = [("r", k) for k in range(BARS)]


def blocks(*args: object) -> Iterator[Block]:
    for state in range(SECONDS * STATES_A_SECOND):
        bar = "█" * (state // STATES_A_SECOND)
        for replica in replicas:
            time.sleep(1 / STATES_A_SECOND / BARS)
            text = f"\r{state:3d}%|{bar:<10}| {state}/1000 [00:{state:02d}<00:09,  9.99it/s]"
            yield replica, [PartialLine(text)]
    for replica in replicas:
        yield replica, ["\n"]


def processor_seconds(reads: bool) -> float:
    begun = time.process_time()
    if reads:
        query = LogQuery(should_tail=True, partial=True)
        with os.fdopen(os.dup(other), "w", encoding="utf-8") as stream:
            LogReader(blocks, "s://s/bars", query, stream, colorize=True).read_all(replicas)
    else:
        for _ in blocks():
            pass
    return time.process_time() - begun


without = processor_seconds(reads=False)  # the time for pacing and making the texts
seconds = (processor_seconds(reads=True) - without) / SECONDS
os.close(other)
screen.wait()
shown = Path(path).read_bytes()
drawings = shown.count(b"\x1b[?7l")
assert drawings <= 10 * (SECONDS + 5), drawings
assert shown.count(b"49%") >= BARS
print({"seconds": seconds, "drawings": drawings})
