"""Measure the dashboard: ``line``, ``idle`` with ten pages that follow logs, or ``jobs``.

``line`` is the median time from a line of a job to the event of the stream, ``idle`` the memory of
the server while ten pages follow the logs of a silent job, and ``jobs`` the time until the stream
has sent the rows of 1,000 jobs.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LINES = 60
PAGES = 10
JOBS = 1000
IDLE_SECONDS = 20.0
MOST_CORE = 0.1
TORCHX = str(Path(sys.executable).with_name("torchx"))
JOB = f"""
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.05)
for _ in range({LINES}):
    time.sleep(0.05)
    print("written", repr(time.time()), "end", flush=True)
"""
PLUGIN = f"""
from torchx_specs import AppState
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.schedulers import ListAppResponse, Scheduler

class Many(Scheduler):
    def schedule(self, info): ...
    def _submit_dryrun(self, app, cfg): ...
    def describe(self, app_id): ...
    def _cancel_existing(self, app_id): ...
    def list(self, cfg=None):
        state = AppState.RUNNING
        return [ListAppResponse(f"job-{{n}}", state, name=f"train-{{n}}") for n in range({JOBS})]

@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("many", lambda session_name, **_: Many("many", session_name))
"""


def stream(address: str, token: str, topic: str, parameters: dict[str, Any]) -> Iterator[Any]:
    """Yield the messages of a subscription."""
    host = re.sub("^http://|/$", "", address)
    connection = http.client.HTTPConnection(host)
    subscription = {"key": "1", "topic": topic, "parameters": parameters}
    body = json.dumps({"subscriptions": [subscription]})
    connection.request("POST", "/api/stream", body, {"X-TorchX-Token": token})
    response = connection.getresponse()
    while line := response.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:]).get("data")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def submitted() -> str:
    Path("writer.py").write_text(JOB)
    run = [TORCHX, "run", "-s", "local_cwd", "--detach", "utils.sh", "--", sys.executable]
    done = subprocess.run([*run, str(Path("writer.py").resolve())], capture_output=True, text=True)
    return re.findall(r"^\w+://\S+", done.stdout, re.M)[0]


def followed(handle: str) -> dict[str, Any]:
    return {"handle": handle, "replicas": [["sh", 0]], "streams": ["combined"]}


def line(address: str, token: str, pid: int) -> dict[str, Any]:
    handle = submitted()
    messages = stream(address, token, "log", followed(handle))
    next(messages)
    Path("go").touch()
    delays: list[float] = []
    while len(delays) < LINES:
        parts = next(messages)
        now = time.time()
        text = "".join(part.get("text", "") for part in parts or ())
        delays += [now - float(found) for found in re.findall(r"written ([\d.]+) end", text)]
    return {"seconds": statistics.median(delays), "lines": LINES}


def idle(address: str, token: str, pid: int) -> dict[str, Any]:
    handle = submitted()
    pages = [stream(address, token, "log", followed(handle)) for _ in range(PAGES)]
    for page in pages:
        next(page)
    time.sleep(5)
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    core = (cpu_seconds(pid) - before) / IDLE_SECONDS
    assert core < MOST_CORE, f"the server uses {core:.3f} of a core; at most {MOST_CORE} is valid"
    [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    Path("go").touch()
    return {"megabytes": int(kilobytes) / 1024, "core": core}


def jobs(address: str, token: str, pid: int) -> dict[str, Any]:
    began, rows = time.perf_counter(), 0
    for message in stream(address, token, "jobs", {}):
        rows += len((message or {}).get("rows", ()))
        if rows >= JOBS:
            return {"seconds": time.perf_counter() - began, "rows": rows}
    raise AssertionError("the stream has ended")


def main() -> None:
    info = Path("plugins/many-1.0.dist-info")
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: many\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchx]\nmany = many_plugin\n")
    Path("plugins/many_plugin.py").write_text(PLUGIN)
    Path(".torchxconfig").write_text("[many]\nkey = value\n")  # the scheduler is in use
    paths = [str(Path("plugins").resolve()), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [TORCHX, "dashboard", "--no-browser"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address, _, token = server.stdout.readline().strip().partition("#token=")
        measure = {"line": line, "idle": idle, "jobs": jobs}[sys.argv[1]]
        print(measure(address, token, server.pid))
    finally:
        server.terminate()
        server.wait()


main()
