"""Calling Slurm's commands: each within a time limit, again while the controller is away."""

from __future__ import annotations

import re

from torchx_kit.hosts.commands import ClusterCommands
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


class Slurm(ClusterCommands):
    """Runs the commands; what they fail with is a :class:`SlurmError`."""

    failed = SlurmError
    unreachable = UnreachableError
    absent = (
        "no Slurm here: there is no command {name} on PATH;"
        " run this on a node of the cluster that users log in to"
    )

    def run(self, *command: str) -> str:
        """Returns what a command prints.

        Raises:
            SlurmError: it is not there, failed or did not answer
        """
        name = command[0]
        done = self.call(command)
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
        return self.again_for_a_while(lambda: self.run(*command))


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
