"""Time ``torchx compare`` of COUNT local apps with metrics in a tracker: compare.py COUNT."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

TRAIN = """\
import sys
from torchx_tracker import app_run_from_env
app_run_from_env().add_metadata(loss=float(sys.argv[-1]) / 7, epoch=3)
"""

count = int(sys.argv[1])
torchx = Path(sys.executable).with_name("torchx")


def run(*arguments: str) -> str:
    done = subprocess.run([torchx, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout[-500:], done.stderr[-500:])
    return done.stdout


Path("train.py").write_text(TRAIN)
for k in range(count):
    run("run", "-s", "local_cwd", "--workspace=", "train.py", "--lr", str(k))
begun = time.perf_counter()
table = run("compare", *(f"@{k}" for k in range(1, count + 1)), "-o", "csv")
seconds = time.perf_counter() - begun
assert len(table.splitlines()) == count + 1, table
assert "loss" in table, table
print({"seconds": seconds})
