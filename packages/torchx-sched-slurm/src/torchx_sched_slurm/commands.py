"""Calling Slurm's commands: each within a time limit, again while the controller is away."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from torchx_specs.errors import BackendError

# What commands say when the controller (or the accounting daemon) could not be reached. Whether it
# has taken the request is not known then.
_UNREACHABLE = (
    "unable to contact slurm controller",
    "connection refused",
    "connection timed out",
    "connect failure",
    "socket timed out",
    "zero bytes were transmitted",
    "transport endpoint is not connected",
    "connection reset by peer",
    "communication connection failure",
    "slurm temporarily unable to accept job",
    "slurm backup controller in standby",
    "resource temporarily unavailable",
)


class SlurmError(BackendError):
    """A command of Slurm failed; the text has Slurm's own words."""


class UnreachableError(SlurmError):
    """The controller does not answer; whether it has taken a request is not known."""


class Slurm:
    """Runs the commands.

    Args:
        timeout: seconds that one call may take
        patience: seconds to try again for while the controller does not answer
        sleep: how to wait
    """

    def __init__(
        self,
        timeout: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self.patience = patience
        self.sleep = sleep

    def run(self, *command: str) -> str:
        """Returns what a command prints.

        Raises:
            SlurmError: it is not there, failed or did not answer
        """
        import subprocess

        name = command[0]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=self.timeout,
                check=False,
            )
        except FileNotFoundError:
            raise SlurmError(
                f"no Slurm here: there is no command {name} on PATH;"
                " run this on a node of the cluster that users log in to"
            ) from None
        except PermissionError as e:
            raise SlurmError(f"cannot run {name}: {e.strerror}") from None
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{name} did not answer within {self.timeout:g} s") from None
        if done.returncode:
            said = own_words(done.stderr or done.stdout) or f"exit code {done.returncode}"
            if is_unreachable(said):
                raise UnreachableError(f"{name}: {said}")
            raise SlurmError(f"{name}: {said}")
        return done.stdout

    def ask(self, *command: str) -> str:
        """Returns what a query prints; asks again for a while if nobody answers.

        Raises:
            SlurmError: it is not there, failed or nobody answered in time
        """
        deadline = time.monotonic() + self.patience
        pause = 0.5
        while True:
            try:
                return self.run(*command)
            except UnreachableError:
                if time.monotonic() + pause > deadline:
                    raise
            self.sleep(pause)
            pause = min(pause * 2, 10.0)


def is_unreachable(said: str) -> bool:
    """Returns True if a command's words mean that nobody answered it."""
    said = said.lower()
    return any(words in said for words in _UNREACHABLE)


def own_words(stderr: str) -> str:
    """Returns what a command said, on one line, each thing once and without its prefixes.

    >>> own_words("sbatch: error: no\\nsbatch: error: no\\nsbatch: error: Batch job: really\\n")
    'no; Batch job: really'
    """
    words = []
    for line in stderr.splitlines():
        text = re.sub(r"^slurm_load_\w+ error: ", "", line.strip())
        command, found, rest = text.partition(": ")
        if found and command in _COMMANDS:
            text = rest
        for prefix in ("error: ", "fatal: "):
            text = text.removeprefix(prefix)
        if text and text not in words:
            words.append(text)
    return "; ".join(words)


_COMMANDS = frozenset({"sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun"})
