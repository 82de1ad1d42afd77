"""A named wrapper of a submission command, which stops at a point that a test chooses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from patience import wait_for

# The wrapper waits at the point "before" the real command, or after it, when the command has
# answered ("accepted"). It ends when the test kills it.
_WRAPPER = """\
#!/bin/sh
hold() {{
    : > '{folder}/paused'
    read -r line < '{folder}/never'
}}
[ "$1" = -V ] && exec '{program}' "$@" # only queries the version
[ {point} = before ] && hold
answer=$('{program}' "$@") || exit
hold
"""

#: The signals that interrupt ``torchx run``, and its exit codes.
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]


def interrupted_run(
    arguments: list[str],
    command: str,
    point: str,
    number: signal.Signals,
    environment: Mapping[str, str],
    folder: Path,
    torchx: Callable[..., subprocess.CompletedProcess[str]],
) -> tuple[int, str]:
    """Interrupt ``torchx run`` while its submission command is held, as Ctrl-C in a terminal does.

    Args:
        arguments: The arguments after ``torchx``.
        command: Name of the submission command, such as ``sbatch``.
        point: ``before`` or ``accepted``.
        number: The signal, which the process group of ``torchx`` receives.
        environment: The environment, in which the command is on PATH.
        folder: A folder for the wrapper.
        torchx: Runs ``torchx`` to its end.

    Returns:
        The exit code of ``torchx``, and the handle that it printed and that ``torchx history`` has.
    """
    program = shutil.which(command, path=environment["PATH"])
    assert program is not None
    programs = folder / "held"
    programs.mkdir()
    os.mkfifo(folder / "never")
    wrapper = programs / command
    wrapper.write_text(_WRAPPER.format(folder=folder, point=point, program=program))
    wrapper.chmod(0o755)
    process = subprocess.Popen(
        [Path(sys.executable).parent / "torchx", *arguments],
        cwd=folder,
        env={**environment, "PATH": f"{programs}{os.pathsep}{environment['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for((folder / "paused").exists)
    os.killpg(process.pid, number)
    output, error = process.communicate()
    assert output == ""
    [handle] = re.findall(r"the submission of (\S+) was interrupted, and the app may run", error)
    [submission] = json.loads(torchx("history", "--json").stdout)
    assert submission["handle"] == handle
    return process.returncode, handle


def check_cancelled_by_interruption(
    scheduler: str,
    command: str,
    number: signal.Signals,
    environment: Mapping[str, str],
    folder: Path,
    torchx: Callable[..., subprocess.CompletedProcess[str]],
    queue: Callable[[], Iterable[str]],
) -> None:
    """Check that an interrupted submission leaves no job in the queue, and a cancelled app.

    This is for schedulers that submit one job for each role. The signal comes when the command has
    submitted the first one.

    Args:
        scheduler: Name of the scheduler.
        command: Name of the submission command.
        number: The signal; one of :data:`SIGNALS`.
        environment: The environment, in which the command is on PATH.
        folder: A folder for the wrapper.
        torchx: Runs ``torchx`` to its end.
        queue: Returns the names of the jobs in the queue.
    """
    run = ["run", "-s", scheduler, "utils.sh", "sleep", "86400"]
    code, handle = interrupted_run(run, command, "accepted", number, environment, folder, torchx)
    assert code == dict(SIGNALS)[number]
    name = handle.rpartition("/")[2]
    wait_for(lambda: not any(name in job for job in queue()))
    assert json.loads(torchx("status", "--json", handle).stdout)["state"] == "CANCELLED"
