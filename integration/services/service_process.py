"""Starting a service's process, as the scripts beside this one do."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ServiceError(Exception):
    """A service did not come up; the text says why."""


def spawn(
    command: Sequence[str], log: Path, service: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a program in the background, in a session of its own.

    Args:
        command: the program and its words
        log: gets what it prints, at its end
        service: what ``integration/install.sh`` calls it
        environment: its variables, ours if None

    Raises:
        ServiceError: there is no such program
    """
    with open(log, "ab") as out:
        try:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ServiceError(f"no {command[0]} here: integration/install.sh {service}") from None
