"""Grid Engine's commands, their error messages, and retries while the qmaster is unreachable."""

from __future__ import annotations

from torchx_kit.hosts.client import ClusterClient
from torchx_specs.errors import BackendError


class SgeError(BackendError):
    """A command of Grid Engine failed; the error text contains the command's messages."""


class UnreachableError(SgeError):
    """The qmaster did not answer, so it is unknown whether it accepted the request."""


class Sge(ClusterClient):
    """Client for Grid Engine's commands; see :class:`torchx_kit.hosts.client.ClusterClient`."""

    error = SgeError
    unreachable_error = UnreachableError
    not_installed = (
        "Grid Engine is not installed: there is no command {name} on PATH; run this on a submit"
        " host of the cluster, with its settings.sh sourced"
    )
    unreachable_messages = (
        "unable to contact qmaster",
        "unable to send message to qmaster",
        "commlib error",
        "failed receiving gdi request",
    )
    env = {"LC_ALL": "C"}  # the output is parsed, so it must not be translated
    # These commands print times without a time zone.
    command_env = {"qstat": {"TZ": "UTC0"}, "qacct": {"TZ": "UTC0"}}

    def is_empty(self, summary: str) -> bool:
        """Return True if a query failed only because the job does not exist."""
        return "do not exist" in summary or "not found" in summary

    def error_summary(self, output: str) -> str:
        """Return the messages on one line, without the text that qsub adds to every refusal."""
        summary = super().error_summary(output).removeprefix("Unable to run job: ")
        return summary.removesuffix("; Exiting.").rstrip(".")
