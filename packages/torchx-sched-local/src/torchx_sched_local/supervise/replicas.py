"""The apps and processes that this process started; subclasses of the scheduler use these names."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from torchx_sched_local.store.layout import NA, SUCCESS
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_kit.logs.streams import Tee
    from torchx_sched_local.request import PopenRequest
    from torchx_sched_local.supervise.supervision import Supervision
    from torchx_specs.model.app import AppDryRunInfo


class PopenProtocol(Protocol):
    """The interface of a started process, which :class:`subprocess.Popen` has."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None before the process was reaped."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return the exit code.

        Args:
            timeout: How long to wait, in seconds; None means without a limit.

        Raises:
            subprocess.TimeoutExpired: The process has not ended.
        """

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""

    def kill(self) -> None:
        """Kill the process."""


class _LocalReplica:
    """A started replica.

    Args:
        role_name: Name of the replica's role.
        replica_id: Index of the replica in the role.
        proc: The replica's first process.
        stdout: The file for standard output; None if the replica has no such file.
        stderr: The file for standard error; None if the replica has no such file.
        combined: Merges both files; None if a supervision merges them, or if a file is missing.
        error_file: Path of the replica's error file.
    """

    def __init__(
        self,
        role_name: str,
        replica_id: int,
        proc: PopenProtocol,
        stdout: BinaryIO | None,
        stderr: BinaryIO | None,
        combined: Tee | None,
        error_file: str,
    ) -> None:
        self.role_name = role_name
        self.replica_id = replica_id
        self.proc = proc
        self.stdout = stdout
        self.stderr = stderr
        self.combined = combined
        self.error_file = error_file

    def terminate(self) -> None:
        """Send SIGTERM to the replica's process group, and close the replica's files."""
        self.signal(signal.SIGTERM)
        self.close_files()

    def signal(self, number: int) -> None:
        """Send a signal to the replica's process group.

        If the replica's process leads no group, kill the process, whatever the signal.
        """
        pid = self.proc.pid
        try:
            # A subclass of the scheduler may start replicas that are no processes of this machine.
            is_leader = type(pid) is int and pid > 1 and os.getpgid(pid) == pid
            if is_leader and self.is_alive():
                os.killpg(pid, number)
                return
        except ProcessLookupError:
            pass
        if self.is_alive():
            self.proc.kill()

    def close_files(self) -> None:
        """Close the replica's files in this process."""
        if self.combined is not None:
            self.combined.close()
        merged = None if self.combined is None else self.combined.out
        for file in (self.stdout, self.stderr, merged):
            if file is not None:
                file.close()

    def is_alive(self) -> bool:
        """Return True while the replica's first process runs."""
        return self.proc.poll() is None

    def failed(self) -> bool:
        """Return True if the replica has ended with another exit code than 0."""
        return not self.is_alive() and self.proc.returncode != 0

    def __repr__(self) -> str:
        return f"_LocalReplica({self.role_name}/{self.replica_id}, pid={self.proc.pid})"


class _LocalAppDef:
    """An app that this process started.

    Args:
        id: The app's id.
        log_dir: The app's folder.
        dryrun_info: The app's dry run; None if unknown.
    """

    def __init__(
        self, id: str, log_dir: str, dryrun_info: AppDryRunInfo[PopenRequest] | None = None
    ) -> None:
        self.id = id
        self.log_dir = log_dir
        self.dryrun_info = dryrun_info
        self.role_replicas: dict[str, list[_LocalReplica]] = {}
        self.state = AppState.PENDING
        self.last_updated = -1.0
        #: None if a subclass started the app without a supervision.
        self.supervision: Supervision | None = None

    @property
    def replicas(self) -> list[_LocalReplica]:
        """The replicas that were started, role by role."""
        return [replica for role in self.role_replicas.values() for replica in role]

    def add_replica(self, role_name: str, replica: _LocalReplica) -> None:
        """Add a started replica; it replaces the replica of an earlier attempt."""
        replicas = self.role_replicas.setdefault(role_name, [])
        k = replica.replica_id
        if k < len(replicas) and replicas[k].replica_id == k:
            replicas[k] = replica
        else:
            replicas.append(replica)

    def set_state(self, state: AppState) -> None:
        """Set the state and the time of its last change."""
        self.last_updated = time.time()
        self.state = state

    def is_own(self) -> bool:
        """Return False in a fork of the process that supervises the app."""
        return self.supervision is None or self.supervision.owner == os.getpid()

    def kill(self) -> None:
        """Terminate all replicas: SIGTERM first, SIGKILL after a grace period.

        Raises:
            BackendError: Processes do not end although they were killed.
        """
        if self.supervision is not None:
            self.supervision.cancel_soon()
            self.supervision.wait_for_end()
            return
        for replica in self.replicas:
            replica.signal(signal.SIGTERM)
        from torchx_sched_local.supervise.processes.replica_processes import GRACE_SECONDS

        if not self.wait(GRACE_SECONDS):
            for replica in self.replicas:
                replica.signal(signal.SIGKILL)
                replica.proc.wait()

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit); return True if the app has ended."""
        if self.supervision is not None:
            return self.supervision.ended.wait(timeout)
        import subprocess

        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            for replica in self.replicas:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                replica.proc.wait(left)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Terminate all replicas, close their files, and write the file ``SUCCESS``."""
        self.kill()
        if self.supervision is None:
            for replica in self.replicas:
                replica.close_files()
            self._write_success()

    def get_structured_error_msg(self) -> str:
        """Return the first error that a replica wrote, as compact JSON, or ``<NONE>``."""
        from torchx_sched_local.describe import first_error

        return first_error(replica.error_file for replica in self.replicas)

    def _write_success(self) -> None:
        from torchx_kit.atomic_files import write_atomically
        from torchx_sched_local.store.app_folder import encode_success, replica_entry

        def name(file: Any) -> str:
            return str(getattr(file, "name", NA))

        roles = {
            role: [
                replica_entry(
                    replica.replica_id,
                    replica.proc.pid,
                    replica.proc.returncode,
                    name(replica.stdout),
                    name(replica.stderr),
                    replica.error_file,
                )
                for replica in replicas
            ]
            for role, replicas in self.role_replicas.items()
        }
        content = encode_success(self.log_dir, self.id, self.state, self.last_updated, roles)
        with contextlib.suppress(OSError):  # this process has the same information in memory
            write_atomically(os.path.join(self.log_dir, SUCCESS), content, 0o666)

    def __repr__(self) -> str:
        pids = {
            role: [replica.proc.pid for replica in replicas]
            for role, replicas in self.role_replicas.items()
        }
        return f"{{app_id:{self.id}, state:{self.state.name}, pid_map:{pids}}}"


def end_apps(apps: Sequence[_LocalAppDef]) -> None:
    """Cancel apps at the same time, and wait until they have ended."""
    for app in apps:
        if app.supervision is not None:
            app.supervision.cancel_soon()
    for app in apps:
        try:
            app.kill()
        except BackendError as e:
            import logging

            logging.getLogger(__name__).warning("%s", e)
