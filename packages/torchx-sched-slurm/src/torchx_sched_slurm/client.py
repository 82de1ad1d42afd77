"""Slurm's commands, their error messages, and retries while the controller is unreachable."""

from __future__ import annotations

import re

from torchx_kit.hosts.client import ClusterClient
from torchx_specs.errors import BackendError, RequestError

_COMMANDS = frozenset({"sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun"})


class SlurmError(BackendError):
    """A command of Slurm failed; the error text contains Slurm's messages."""


class RefusedError(SlurmError, RequestError):
    """Slurm refused a job because of a value in the request."""

    exit_code = RequestError.exit_code


class UnreachableError(SlurmError):
    """The controller did not answer, so whether it accepted the request is unknown."""


# Parts of messages of sbatch, in lower case. They mean that the user must change the request.
_REFUSALS = (
    *(
        "invalid partition",
        "invalid account",
        "invalid qos",
        "invalid feature",
        "invalid node name",
    ),
    *("invalid generic resource", "invalid --", "invalid constraint", "invalid job dependency"),
    *("invalid time limit", "invalid reservation", "reservation is invalid", "unrecognized option"),
    *("requested node configuration is not available", "invalid wckey"),
    *("requested time limit", "requested partition configuration", "more processors requested"),
    *("node count specification invalid", "memory specification can not be satisfied"),
    *("invalid number", "invalid gres", "invalid tres", "dependency problem", "invalid begin"),
    *("invalid mail type", "invalid signal", "not permitted to use this partition"),
)


def as_refusal(error: SlurmError) -> SlurmError:
    """Return a :class:`RefusedError` if sbatch refused a value of the request, else the error."""
    text = str(error).lower()
    if type(error) is SlurmError and any(part in text for part in _REFUSALS):
        return RefusedError(str(error))
    return error


class Slurm(ClusterClient):
    """Client for Slurm's commands; see :class:`torchx_kit.hosts.client.ClusterClient`."""

    error = SlurmError
    unreachable_error = UnreachableError
    not_installed = (
        "Slurm is not installed: there is no command {name} on PATH;"
        " run this on a login node of the cluster"
    )
    unreachable_messages = (
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

    def error_summary(self, output: str) -> str:
        r"""Return the error messages in one line, without duplicates and prefixes.

        >>> Slurm().error_summary("sbatch: error: a\nsbatch: error: a\nsbatch: error: job: b")
        'a; job: b'
        """
        messages = []
        for line in output.splitlines():
            message = re.sub(r"^slurm_load_\w+ error: ", "", line.strip())
            command, colon, rest = message.partition(": ")
            if colon and command in _COMMANDS:
                message = rest
            for prefix in ("error: ", "fatal: "):
                message = message.removeprefix(prefix)
            if message and message not in messages:
                messages.append(message)
        return "; ".join(messages)
