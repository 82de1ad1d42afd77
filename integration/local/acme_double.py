"""A double of the batch system Acme of docs/batch-systems.md: asub, astat, adel and afree.

    acme_double.py asub|astat|adel|afree ...

The commands really run the jobs, each in a session of its own. A job is a folder of $BATCH_DOUBLE
with the file ``job``, which has its name, directory and command, and the empty files ``held``,
``deleted``, ``running`` and ``ended``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOBS = Path(os.environ["BATCH_DOUBLE"])
PAUSE = 0.02
# The time between SIGTERM and SIGKILL, in seconds.
GRACE = 2.0


def asub(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="asub")
    parser.add_argument("--hold", action="store_true")
    for name in ("--cpus", "--queue", "--name", "--dir"):
        parser.add_argument(name)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(argv)
    if given.queue == "closed":
        sys.exit("asub: unknown queue: closed")
    job = Path(tempfile.mkdtemp(prefix="", dir=JOBS))
    if given.hold:
        (job / "held").touch()
    (job / "job").write_text(json.dumps([given.name, given.dir, given.command]))
    subprocess.Popen(
        [sys.executable, "-S", __file__, "run", job.name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(job.name)
    return 0


def run(argv: list[str]) -> int:
    """Run a job in the background, as Acme's daemon would."""
    job = JOBS / argv[0]
    _, folder, command = json.loads((job / "job").read_text())
    while (job / "held").exists():
        time.sleep(PAUSE)
    if (job / "deleted").exists():
        return 0
    with subprocess.Popen(command, cwd=folder, start_new_session=True) as process:
        (job / "running").touch()
        for number in (signal.SIGTERM, signal.SIGKILL):
            while process.poll() is None and not (job / "deleted").exists():
                time.sleep(PAUSE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
    (job / "ended").touch()
    return 0


def astat(argv: list[str]) -> int:
    wanted = argv[argv.index("--format") + 2 :] or [path.name for path in JOBS.iterdir()]
    for number in wanted:
        job = JOBS / number
        is_running = (job / "running").exists()
        is_known = (job / "job").exists() and not (job / "ended").exists()
        if is_known and (is_running or not (job / "deleted").exists()):
            state = "R" if is_running else "H" if (job / "held").exists() else "Q"
            name = json.loads((job / "job").read_text())[0]
            print(number, name, state, os.uname().nodename, sep="\t")
    return 0


def adel(argv: list[str]) -> int:
    for number in argv:
        if not (JOBS / number).exists():
            sys.exit(f"adel: no such job: {number}")
        (JOBS / number / "deleted").touch()
        (JOBS / number / "held").unlink(missing_ok=True)
    return 0


def afree(argv: list[str]) -> int:
    for number in argv:
        (JOBS / number / "held").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit({f.__name__: f for f in (asub, run, astat, adel, afree)}[sys.argv[1]](sys.argv[2:]))
