"""A service's process: started, watched and ended, as the scripts beside this one do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ServiceError(Exception):
    """A service did not come up; the text says why."""


def spawn(
    command: Sequence[str],
    log: Path,
    service: str,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program in the background, in a session of its own.

    Args:
        command: the program and its words
        log: gets what it prints, at its end
        service: what ``integration/install.sh`` calls it
        variables: its environment, ours if None
        folder: where it runs, ours if None

    Raises:
        ServiceError: there is no such program
    """
    with open(log, "ab") as out:
        try:
            return subprocess.Popen(
                command,
                env=variables,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ServiceError(f"no {command[0]} here: integration/install.sh {service}") from None


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns ours with those variables, and with the folders of system programs in ``PATH``."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", **variables}


def is_alive(pid: int) -> bool:
    """Tells whether a process runs, be it a child of ours or not."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send_signal(pid: int, number: int) -> None:
    """Sends a signal; a process that has ended does not mind."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
