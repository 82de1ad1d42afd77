"""The record of a job: a directory in which the job's script reports how its replicas end.

The record lies beside the job's logs on the cluster's file system, so that a job's outcome is known
even after the batch system has forgotten the job. The first two kinds of files have one line of
fields, separated by spaces:

- ``replica-<role>-<k>``: restarts, node, start time; when the replica has ended also end time and
  exit code. Times are epoch seconds; exit codes are a shell's (above 128 for a signal).
- ``failed``: role, replica, node and exit code of the replica that failed first.
- ``error-<role>-<k>.json``: the error that a replica reported (``TORCHELASTIC_ERROR_FILE``).

``<role>`` is the index of the role in the script.
"""

from __future__ import annotations

import contextlib
import posixpath
from dataclasses import dataclass

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostError, HostFileError
from torchx_kit.signals import describe_exit, process_exit_code
from torchx_specs.errors import RequestError


@dataclass
class ReplicaRecord:
    """The report of a replica.

    Attributes:
        restarts: How often the process of the replica was restarted in place.
        node: Name of the machine that runs or ran the replica.
        started: Start time of the process, in epoch seconds.
        ended: End time, in epoch seconds; None while the process runs.
        exit_code: Exit code as :mod:`subprocess` reports it: negative for a signal.
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
        """Return the failure in words.

        Args:
            roles: Names of the roles.
        """
        name = roles[self.role] if self.role < len(roles) else str(self.role)
        return f"{name}/{self.replica} on {self.node}: {describe_exit(self.exit_code)}"


class JobRecord:
    """The record of one job.

    Files may be missing, because the job writes them while it runs.

    Args:
        host: The machine with the file system of the job.
        path: The directory.
    """

    def __init__(self, host: Host, path: str) -> None:
        self.host = host
        self.path = path

    def create(self, script: str, text: str, option: str) -> str:
        """Create the record with the job's script, readable by the user alone.

        Args:
            script: File name of the script.
            text: Content of the script.
            option: Name of the option that sets the job's directory, for the error message.

        Returns:
            The path of the script.

        Raises:
            RequestError: The job's directory is not writable.
        """
        path = posixpath.join(self.path, script)
        try:
            self.host.make_dirs(self.path, mode=0o700)
            self.host.write(path, text)
        except HostFileError as e:
            raise RequestError(
                f"{e}; set the option {option} to a directory that you and the nodes can write to"
            ) from None
        return path

    def remove(self) -> None:
        """Remove the record, and the directory of records if it was the last one."""
        with contextlib.suppress(HostError):
            self.host.remove_tree(self.path)
            self.host.remove_empty_dir(posixpath.dirname(self.path))

    def replica_path(self, role: int, k: int) -> str:
        """Return the path of a replica's report file, which changes when the replica ends."""
        return posixpath.join(self.path, f"replica-{role}-{k}")

    def replica(self, role: int, k: int) -> ReplicaRecord | None:
        """Return the report of a replica; None if it was not started (in this attempt)."""
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

    def error(self, role: int, k: int) -> str:
        """Return the JSON of the error that a replica reported, or an empty string."""
        return self.text(f"error-{role}-{k}.json").strip()

    def fields(self, name: str, count: int) -> list[str]:
        """Return the fields of a file.

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
        try:
            return self.host.read_text(posixpath.join(self.path, name))
        except HostFileError:
            return ""
