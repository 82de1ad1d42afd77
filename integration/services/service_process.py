"""Start, watch and end the process of a service; shared by the scripts in this folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ServiceError(Exception):
    """A service did not start."""


def spawn(
    command: Sequence[str],
    log: Path,
    service: str,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in the background, in a session of its own.

    Args:
        command: The program and its arguments.
        log: The file to which its output is appended.
        service: The argument of ``integration/install.sh`` that installs the program.
        variables: Its environment; None for that of this process.
        folder: Its working directory; None for that of this process.

    Raises:
        ServiceError: The program does not exist.
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
            raise ServiceError(
                f"{command[0]} is not installed; run: integration/install.sh {service}"
            ) from None


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with the variables, and with /usr/sbin in ``PATH``."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", **variables}


def is_alive(pid: int) -> bool:
    """Return True if a process runs, whether it is a child of this process or not."""
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
    """Send a signal to a process, unless it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
