"""Start, watch and end the processes of a service; shared by the scripts in this folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path


class ServiceError(Exception):
    """A service did not start, or one of its commands failed."""


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
        log: The file to which the program's output is appended.
        service: The argument of ``integration/install.sh`` that installs the program.
        variables: The program's whole environment; None means the environment of this process.
        folder: The program's working directory; None means the directory of this process.

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


def spawn_recorded(
    folder: Path, name: str, command: Sequence[str], service: str, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program of a service as :func:`spawn` does, and record its process in FOLDER/pids.

    Args:
        folder: The directory of the service, and the program's working directory. The program's
            output goes to the file NAME.out in it.
        name: The name of the process in FOLDER/pids.
        command: The program and its arguments.
        service: The argument of ``integration/install.sh`` that installs the program.
        variables: Variables that are added to the environment of this process.

    Raises:
        ServiceError: The program does not exist.
    """
    process = spawn(command, folder / f"{name}.out", service, environment(variables), folder)
    pids = {**recorded_pids(folder), name: process.pid}
    lines = [f"{key} {pid} {_start_time(pid)}\n" for key, pid in pids.items()]
    (folder / "pids").write_text("".join(lines))
    return process


def recorded_pids(folder: Path) -> dict[str, int]:
    """Return the ids of the processes in FOLDER/pids that exist, by name.

    The id of a process that has ended may belong to another process, which started at another time.
    """
    try:
        lines = (folder / "pids").read_text().splitlines()
    except FileNotFoundError:
        return {}
    records = (line.split() for line in lines)
    return {name: int(pid) for name, pid, start in records if _start_time(int(pid)) == start}


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since the boot; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def wait_until_ready(
    folder: Path, name: str, ready: Callable[[], bool], logs: Iterable[Path], seconds: float
) -> None:
    """Wait until a process of a service is ready.

    Args:
        folder: The directory of the service.
        name: The name of the process in FOLDER/pids.
        ready: Returns True once the process is ready.
        logs: Log files; the error contains the end of each.
        seconds: How long to wait at most.

    Raises:
        ServiceError: The process has ended, or is not ready in time.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        pid = recorded_pids(folder).get(name)
        ended = pid is None or not is_alive(pid)
        if ended or time.monotonic() > deadline:
            ends = [log.read_text(errors="replace")[-1000:] for log in logs if log.exists()]
            raise ServiceError(
                f"{name} {'has ended' if ended else 'is not ready'}: {' '.join(ends)}"
            )
        time.sleep(0.05)


def run(
    command: Sequence[str], variables: Mapping[str, str], seconds: float, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command of a service with variables in its environment.

    Args:
        command: The command and its arguments.
        variables: Variables that are added to the environment of this process.
        seconds: How long the command may take.
        check: Whether to raise an error if the command fails.

    Raises:
        ServiceError: The command fails, and ``check`` is True.
    """
    done = subprocess.run(
        command,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if check and done.returncode:
        raise ServiceError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with more variables, and with /usr/sbin in ``PATH``."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", **variables}


def is_alive(pid: int) -> bool:
    """Return True unless a process has ended or is a zombie; an ended child is reaped."""
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


def wait_until_ended(pids: Iterable[int], seconds: float) -> None:
    """Wait until processes have ended, but at most ``seconds``."""
    pids = list(pids)
    deadline = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)


def print_exports(service: str, start: Callable[[], Mapping[str, str]]) -> int:
    """Start a service, and print the variables that its clients need as ``export`` statements.

    Args:
        service: The name of the service, for messages.
        start: Starts the service, and returns the environment variables of its clients.

    Returns:
        The exit code of the calling script: 0, or 1 if the service does not start.
    """
    try:
        variables = start()
    except ServiceError as e:
        print(f"{service}: {e}", file=sys.stderr)
        return 1
    for key, value in variables.items():
        print(f"export {key}={value}")
    return 0
