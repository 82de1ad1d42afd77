"""Run COUNT jobs of ``true`` on this machine: many.py sweep|own|submitit|loop COUNT.

The script prints the processor time of this process and all its children for 1,000 jobs, the part
of that time that the processes of ``true`` take, and the memory of the largest process. ``own``
runs a sweep, too, and prints the time without the processes of ``true``. For each job, ``loop``
writes two log files and a line in a job log, as GNU parallel does.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def true(n: int) -> AppDef:
    """Run true.

    Args:
        n: The number of the element.
    """
    resource = Resource(cpu=1, gpu=0, memMB=1)
    return AppDef("true", [Role("main", "", entrypoint="true", args=[str(n)], resource=resource)])
'''
PARALLEL = os.cpu_count() or 1
SAMPLES = 500

PR_SET_CHILD_SUBREAPER = 36

side, count = sys.argv[1], int(sys.argv[2])


def run_sweep() -> None:
    from torchx_runner import get_runner
    from torchx_sweep import sweep, wait

    Path("component.py").write_text(COMPONENT, "utf-8")
    with get_runner() as runner:
        handle = sweep(runner, "component.py:true", grid={"n": range(count)})
    found = wait(handle).counts
    if [(state.name, number) for state, number in found.items()] != [("SUCCEEDED", count)]:
        sys.exit(f"not all elements succeeded: {found}")
    for thread in threading.enumerate():
        if thread.name == "torchx-sweep-driver":  # This thread waits for the driver's process.
            thread.join()


def run_submitit() -> None:
    import submitit

    executor = submitit.LocalExecutor(folder="jobs")
    for first in range(0, count, PARALLEL):
        size = min(PARALLEL, count - first)
        jobs = [executor.submit(subprocess.call, ["true"]) for _ in range(size)]
        if any(job.result() for job in jobs):
            sys.exit("a job failed")


def run_loop() -> None:
    running: list[subprocess.Popen[bytes]] = []
    with open("joblog", "w", encoding="utf-8") as log:

        def wait_for_first() -> None:
            process = running.pop(0)
            log.write(f"{process.pid}\t{process.wait()}\n")
            log.flush()

        for number in range(count):
            if len(running) == PARALLEL:
                wait_for_first()
            with open(f"{number}.out", "wb") as out, open(f"{number}.err", "wb") as err:
                running.append(subprocess.Popen(["true", str(number)], stdout=out, stderr=err))
        while running:
            wait_for_first()


# Drivers and supervisors may outlive their parents. Adopt them, so that their time counts.
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
{"sweep": run_sweep, "own": run_sweep, "submitit": run_submitit, "loop": run_loop}[side]()
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
megabytes = max(usage.ru_maxrss for usage in usages) // 1024

# Measure the processor time that processes of ``true`` take, on the same machine now.
before = resource.getrusage(resource.RUSAGE_CHILDREN)
for _ in range(SAMPLES):
    os.waitpid(os.posix_spawnp("true", ["true", "0"], os.environ), 0)
after = resource.getrusage(resource.RUSAGE_CHILDREN)
sampled = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
milliseconds = seconds / count * 1000
true_milliseconds = sampled / SAMPLES * 1000
if side == "own":
    milliseconds -= true_milliseconds
# The milliseconds of one job are the seconds of 1,000 jobs.
result = {"seconds": milliseconds, "MB": megabytes}
print({**result, "of which true": round(true_milliseconds, 3)} if side != "own" else result)
