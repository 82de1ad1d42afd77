"""LSF's commands, their error messages, and retries while LSF is unreachable."""

from __future__ import annotations

from torchx_kit.hosts.client import ClusterClient
from torchx_specs.errors import BackendError, CapacityError

# Messages of bjobs if it finds no jobs; bjobs then exits with an error code.
_NO_JOBS = ("is not found", "no job found", "no unfinished job found", "no matching job")


class LsfError(BackendError):
    """A command of LSF failed; the error text contains LSF's messages."""


class UnreachableError(LsfError):
    """LSF did not answer, so whether it accepted the request is unknown."""


class LimitError(LsfError, CapacityError):
    """LSF did not accept a job array because too many jobs are pending."""


class Lsf(ClusterClient):
    """Client for LSF's commands; see :class:`torchx_kit.hosts.client.ClusterClient`."""

    error = LsfError
    unreachable_error = UnreachableError
    not_installed = (
        "LSF is not installed: there is no command {name} on PATH; run this on a login host of"
        " the cluster, with LSF's profile sourced"
    )
    unreachable_messages = (
        "lsf is down",
        "please wait",
        "cannot connect",
        "communication",
        "not responding",
    )
    env = {"LC_ALL": "C"}  # the output is parsed, so it must not be translated
    # bjobs prints times without a zone. Jobs do not inherit the variable.
    command_env = {"bjobs": {"TZ": "UTC0"}}

    def is_empty(self, summary: str) -> bool:
        """Return whether bjobs failed only because it found no jobs."""
        return any(text in summary.lower() for text in _NO_JOBS)
