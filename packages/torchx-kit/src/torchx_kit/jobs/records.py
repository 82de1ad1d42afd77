"""The record of a job: a directory in which the job's script reports how the replicas end.

The record is in the directory of the job's logs, on the cluster's file system. So a job's outcome
is known even after the batch system has forgotten the job. The first two kinds of files have one
line of fields, separated by spaces:

- ``replica-<role>-<k>``: restarts, node and start time; once the replica has ended, also end time
  and exit code. Times are epoch seconds; exit codes are those of a shell (above 128: a signal).
- ``failed``: role, replica, node and exit code of the replica that failed first.
- ``setup-<role>-<k>``: the line of the option ``setup`` at which the replica failed.
- ``error-<role>-<k>.json``: the error that a replica reported (``TORCHELASTIC_ERROR_FILE``).
- ``attempts`` and ``refused``: the attempts of an app with the option ``requeue``, and why it does
  not start again (:mod:`torchx_kit.scripts.attempt_script`).
- ``started``: exists if one script runs all replicas, and has begun (Slurm).

``<role>`` is the index of the role in the script, and ``<k>`` the index of the replica in its role.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostError, HostFileError
from torchx_kit.jobs.attempts import last_resume_dir, newest_step, parse_attempts
from torchx_kit.jobs.error_files import READ_BYTES, error_text
from torchx_kit.scripts.attempt_script import ATTEMPTS, REFUSED
from torchx_kit.signals import describe_exit, process_exit_code
from torchx_specs.model.status import AppState, AttemptStatus, is_terminal

if TYPE_CHECKING:
    from torchx_specs.model.status import RoleStatus

#: Patterns of the names of the files with which a job reports its progress.
REPORTS = ("replica-*", "failed", "setup-*", "error-*", "cancelled", ATTEMPTS, REFUSED)


@dataclass
class ReplicaRecord:
    """The content of a replica's report file.

    Attributes:
        restarts: How many times the process of the replica was restarted in place.
        node: Name of the machine that runs or ran the replica.
        started: Start time of the process, in epoch seconds.
        ended: End time, in epoch seconds; None while the process runs.
        exit_code: Exit code as :mod:`subprocess` reports it: negative for a signal. None while the
            process runs.
    """

    restarts: int
    node: str
    started: int
    ended: int | None = None
    exit_code: int | None = None


@dataclass
class FirstFailure:
    """The replica that failed first.

    Attributes:
        role: Index of the replica's role.
        replica: Index of the replica in its role.
        node: Name of the machine that ran the replica.
        exit_code: Exit code as :mod:`subprocess` reports it: negative for a signal.
    """

    role: int
    replica: int
    node: str
    exit_code: int

    def describe(self, roles: list[str]) -> str:
        """Return a sentence that describes the failure.

        Args:
            roles: Names of the roles.
        """
        name = roles[self.role] if self.role < len(roles) else str(self.role)
        return f"{name}/{self.replica} on {self.node}: {describe_exit(self.exit_code)}"

    def describe_with(self, statuses: Sequence[RoleStatus]) -> str:
        """Return a sentence that describes the failure, with the reason in the replica's status.

        Args:
            statuses: The statuses of all roles.
        """
        first = statuses[self.role].replicas[self.replica]
        reason = first.reason or describe_exit(self.exit_code)
        return f"{first.role}/{first.id} on {self.node}: {reason}"


class JobRecord:
    """The record of one job.

    Files may be missing, because the job writes them while it runs.

    Args:
        host: The machine with the file system of the job.
        path: Path of the record's directory.
        files: The content of the files :data:`REPORTS`, if it was read before, by name. None means
            that each file is read when it is used.
    """

    def __init__(self, host: Host, path: str, files: Mapping[str, bytes] | None = None) -> None:
        self.host = host
        self.path = path
        self._files = files

    def remove(self) -> None:
        """Remove the record, and the directory above if it is then empty; ignore errors."""
        with contextlib.suppress(HostError):
            self.host.remove_tree(self.path)
            self.host.remove_empty_dir(posixpath.dirname(self.path))

    def replica_path(self, role: int, k: int) -> str:
        """Return the path of a replica's report file, which changes when the replica ends."""
        return posixpath.join(self.path, f"replica-{role}-{k}")

    def has_begun(self) -> bool:
        """Return whether a replica, or the script of all replicas, has begun."""
        try:
            names = self.host.list(self.path)
        except HostFileError:
            return False
        return any(name == "started" or name.startswith("replica-") for name in names)

    def replica(self, role: int, k: int) -> ReplicaRecord | None:
        """Return the report of a replica; None if the current attempt has not started the replica.

        If the batch system restarts the job, a new attempt begins.
        """
        fields = self.fields(f"replica-{role}-{k}", 3)
        if not fields:
            return None
        record = ReplicaRecord(int(fields[0]), fields[1], int(fields[2]))
        if len(fields) >= 5:
            record.ended, record.exit_code = int(fields[3]), process_exit_code(int(fields[4]))
        return record

    def first_failure(self) -> FirstFailure | None:
        """Return the replica that failed first, None if none has failed."""
        fields = self.fields("failed", 4)
        if not fields:
            return None
        exit_code = process_exit_code(int(fields[3]))
        return FirstFailure(int(fields[0]), int(fields[1]), fields[2], exit_code)

    def describe_end(self, role: int, k: int, exit_code: int) -> str:
        """Return how a replica ended, in words; empty for exit code 0.

        If a line of the option ``setup`` failed, the text contains this line.

        Args:
            role: Index of the replica's role.
            k: Index of the replica in its role.
            exit_code: Exit code as :mod:`subprocess` reports it: negative for a signal.
        """
        line = self.text(f"setup-{role}-{k}").partition("\n")[0] if exit_code > 0 else ""
        if line:
            return f"setup failed with exit code {exit_code} at: {line}"
        return describe_exit(exit_code)

    def error(self, role: int, k: int) -> str:
        """Return the error that a replica reported, as JSON; an empty string if there is none.

        A long error is shortened, see :func:`~torchx_kit.jobs.error_files.error_text`.
        """
        name = f"error-{role}-{k}.json"
        content = self._content(name, READ_BYTES + 1)
        path = posixpath.join(self.path, name)
        return error_text(content[:READ_BYTES], len(content), path) if content else ""

    @cached_property
    def attempts(self) -> list[AttemptStatus]:
        """The attempts that the job reported; empty for an app without the option ``requeue``."""
        return parse_attempts(self.text(ATTEMPTS))

    def refusal(self) -> str:
        """Return why the app does not start again; empty if that is not the reason of its end."""
        return self.text(REFUSED).strip().removeprefix("-")

    def attempt_statuses(
        self, state: AppState, ended: datetime | None = None
    ) -> list[AttemptStatus]:
        """Return the attempts for a description.

        Args:
            state: The state of the app.
            ended: When the app ended; None if it has not, or if unknown.
        """
        found = [*self.attempts]
        if found and found[-1].ended is None:
            found[-1] = replace(found[-1], committed_step=self._step_now())
            if is_terminal(state):
                found[-1] = replace(found[-1], reason=state.name.lower(), ended=ended)
        return found

    def _step_now(self) -> int | None:
        folder = last_resume_dir(self.text(ATTEMPTS))
        try:
            return newest_step(self.host.list(folder)) if folder else None
        except HostFileError:
            return None

    def fields(self, name: str, count: int) -> list[str]:
        """Return the fields of a file, which are separated by spaces or newlines.

        Args:
            name: Name of the file.
            count: The smallest number of fields that the file has once it is complete.

        Returns:
            The fields; an empty list if the file is missing or incomplete.
        """
        text = self.text(name)
        fields = text.split()
        return fields if text.endswith("\n") and len(fields) >= count else []

    def text(self, name: str) -> str:
        """Return the content of a file, or an empty string if it is missing or unreadable."""
        return self._content(name).decode("utf-8", "surrogateescape")

    def _content(self, name: str, limit: int | None = None) -> bytes:
        if self._files is not None:
            return self._files.get(name, b"")
        try:
            return self.host.read(posixpath.join(self.path, name), limit)
        except HostFileError:
            return b""
