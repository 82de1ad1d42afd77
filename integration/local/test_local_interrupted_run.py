"""``torchx run --detach`` of a local app is interrupted at each point of its start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from patience import wait_for

# A plugin that waits for a signal at the point that the variable POINT names: when the processes
# run and the supervisor's report is read, before the start is confirmed, or after the submission.
PLUGIN = """
import logging, os, sys, time
from torchx_sched_local import submit
from torchx_sched_local.supervise import start_supervisor
from torchx_specs.hookspecs import *
from torchx_specs.plugins.records import *

def pausing(point, function):
    def call(*args):
        result = function(*args)
        if os.environ["POINT"] == point:
            print("pausing", file=sys.__stderr__, flush=True)
            # signal.pause() would wait for ever if the signal arrived before the call.
            while True:
                time.sleep(0.05)
        return result
    return call

start_supervisor._read_report = pausing("reported", start_supervisor._read_report)
submit._in_new_folder = pausing("started", submit._in_new_folder)

class Events(logging.Handler):
    def emit(self, record):
        if '"api": "schedule"' in record.getMessage():
            pausing("submitted", str)()

@hookimpl
def torchx_event_handlers():
    yield EventHandlerPlugin("null", Events)
"""


@pytest.mark.gate
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("point", "state"), [("reported", None), ("started", "CANCELLED"), ("submitted", "RUNNING")]
)
def test_interrupt_undoes_the_start_or_prints_the_handle(
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
    point: str,
    state: str | None,
) -> None:
    (tmp_path / "pausing.py").write_text(PLUGIN)
    info = tmp_path / "pausing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pausing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchx]\npausing = pausing\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), environment.get("PYTHONPATH", "")]))
    run = ["run", "-s", "local_cwd", "--detach", "utils.sh", "sleep", "86400"]
    process = subprocess.Popen(
        [Path(sys.executable).parent / "torchx", *run],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": path, "POINT": point},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert any("pausing" in line for line in process.stderr)
    process.send_signal(number)
    output, error = process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert output == ""
    handles = re.findall(r"the submission of (\S+) was interrupted, and the app may run", error)
    history = json.loads(torchx("history", "--json").stdout)
    listed = json.loads(torchx("list", "-s", "local_cwd", "--json").stdout)
    assert [one["handle"] for one in history] == [one["handle"] for one in listed] == handles
    assert len(handles) == (state is not None)
    for handle in handles:
        status = ["status", "--json", handle]
        wait_for(lambda s=status: json.loads(torchx(*s).stdout)["state"] == state)
        assert torchx("cancel", handle).returncode == 0
