"""Start, query and signal the processes of services."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ServiceError(Exception):
    """A service did not start; the message has the reason."""


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
        service: The name of the service in ``integration/install.sh``, for the error message.
        variables: Its environment (default: this process's).
        folder: Its working directory (default: this process's).

    Raises:
        ServiceError: The program is not installed.
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
                f"{command[0]!r} is not on PATH; run: integration/install.sh {service}"
            ) from None


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with ``variables``, and with ``/usr/sbin`` in ``PATH``."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", **variables}


def is_alive(pid: int) -> bool:
    """Return whether a process runs; it need not be a child of this process."""
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
    """Send a signal; do nothing if the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
