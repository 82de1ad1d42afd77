"""Slurm's commands, their error messages, and retries while the controller is unreachable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torchx_kit.hosts.client import ClusterClient
from torchx_kit.hosts.errors import HostError
from torchx_specs.errors import BackendError, CapacityError, RequestError

#: How long the first query may take before `scontrol ping` queries the controllers' state, in
#: seconds. `squeue` itself tries an unreachable controller for MessageTimeout (10 s by default).
_FIRST_QUERY_SECONDS = 3.0
_PING_SECONDS = 3.0
_CLUSTERS = "--clusters"

# The variables, without the command's name, by which users change what a command does. The manual
# pages of 22.05 and 24.11 list them. A filter of the user would hide jobs, so they are removed.
# SLURM_CLUSTERS stays, because it selects the cluster for all commands. sbatch keeps the defaults
# of the user, except these, which no job of TorchX can have, and those of options that are set
# (torchx_sched_slurm.options).
_REMOVED = {
    "squeue": "ACCOUNT ALL ARRAY ARRAY_UNIQUE FEDERATION FORMAT FORMAT2 LICENSES LOCAL NAMES"
    " PARTITION PRIORITY QOS SIB SIBLING SORT STATES USERS",
    "sacct": "FEDERATION FORMAT LOCAL",
    "scancel": "ACCOUNT BATCH CRON CTLD FULL HURRY INTERACTIVE NAME PARTITION QOS STATE USER"
    " VERBOSE WCKEY",
    "sinfo": "ALL FEDERATION FORMAT FUTURE LOCAL PARTITION SORT",
    "scontrol": "ALL FEDERATION FUTURE LOCAL SIB SIBLING",
    "sbatch": "ARRAY_INX NO_REQUEUE WAIT",
}
# The format of times in the output of queries: seconds since 1970, which have no time zone. Not for
# sbatch: its jobs would inherit the variable.
_TIMES = {"SLURM_TIME_FORMAT": "%s"}

_COMMANDS = frozenset({"sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun"})


class SlurmError(BackendError):
    """A command of Slurm failed; the error text contains Slurm's messages."""


class RefusedError(SlurmError, RequestError):
    """Slurm refused a job because of a value in the request."""

    exit_code = RequestError.exit_code


class UnreachableError(SlurmError):
    """The controller did not answer, so whether it accepted the request is unknown."""


class LimitError(SlurmError, CapacityError):
    """Slurm did not accept a job because the user has too many submitted jobs."""


# Messages of sbatch which mean that the user has too many jobs: QOSMaxSubmitJobPerUserLimit,
# AssocMaxSubmitJobLimit and others.
_LIMITS = re.compile(r"submitjob|job submit limit", re.I)
# Messages of sbatch which mean that the user must change the request.
_REFUSALS = re.compile(
    r"invalid (?!user id|auth|job credential|rpc)|reservation is invalid|unrecognized option"
    r"|is ambiguous|requires an argument|doesn't allow an argument|mutually exclusive"
    r"|requested (node|partition) configuration|requested time limit|more processors requested"
    r"|node count specification invalid|memory specification can not be satisfied"
    r"|dependency problem|not permitted to use this (partition|account|qos)",
    re.I,
)


def as_refusal(error: SlurmError) -> SlurmError:
    """Return the LimitError or RefusedError for a message of sbatch, or else ``error`` itself."""
    if type(error) is SlurmError:
        for pattern, kind in ((_LIMITS, LimitError), (_REFUSALS, RefusedError)):
            if pattern.search(str(error)):
                return kind(str(error))
    return error


class Slurm(ClusterClient):
    """Client for Slurm's commands; see :class:`torchx_kit.hosts.client.ClusterClient`.

    If a controller has answered this client before, it is expected to come back, so queries are
    retried for ``patience`` seconds. Before the first answer, a query fails as soon as ``scontrol
    ping`` reports that all controllers are down. A slow controller does not make a query fail.
    """

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

    command_env = {
        name: {
            **dict.fromkeys(f"{name.upper()}_{word}" for word in words.split()),
            **(_TIMES if name in ("squeue", "sacct") else {}),
        }
        for name, words in _REMOVED.items()
    }

    #: Whether a controller has answered this client.
    _has_answered = False

    def run_idempotent(self, *argv: str) -> str:
        """Run a query that is safe to repeat; see the class for how long it is retried.

        Raises:
            SlurmError: The query failed, or the controllers are down.
        """
        if not self._has_answered:
            try:
                return self._run(argv, min(_FIRST_QUERY_SECONDS, self.timeout), allow_empty=True)
            except UnreachableError as e:
                state = self._ping(argv)
                if "is DOWN" in state and "is UP" not in state:
                    raise UnreachableError(f"{e} (scontrol ping: {state})") from None
        return super().run_idempotent(*argv)

    def run_unless(self, messages: Sequence[str], *argv: str) -> str | None:
        """Run a command like :meth:`run_idempotent`; return None if it fails with a given message.

        Args:
            messages: Parts of error messages, in lower case.
            argv: The command and its arguments.
        """
        try:
            return self.run_idempotent(*argv)
        except SlurmError as e:
            if any(text in str(e).lower() for text in messages):
                return None
            raise

    def _ping(self, argv: Sequence[str]) -> str:
        """Return the state of the controllers as ``scontrol ping`` prints it; empty if unknown.

        Args:
            argv: The query; its option ``--clusters`` selects the cluster.
        """
        at = argv.index(_CLUSTERS) if _CLUSTERS in argv else len(argv)
        try:
            result = self.host.run(
                ("scontrol", *argv[at : at + 2], "ping"),
                timeout=_PING_SECONDS,
                env=self.command_env["scontrol"],
            )
        except HostError:
            return ""
        lines = (line.strip() for line in result.stdout.splitlines())
        return "; ".join(line for line in lines if line.startswith("Slurmctld("))

    def _run(
        self,
        argv: Sequence[str],
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        allow_empty: bool = False,
    ) -> str:
        output = super()._run(argv, timeout, env, allow_empty)
        if argv[0] != "sacct":  # sacct queries the accounting daemon instead
            self._has_answered = True
        return output

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
