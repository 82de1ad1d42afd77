"""Processes as the launcher holds them; the names that subclasses of the scheduler use."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from torchx_sched_local.store.layout import NA
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_kit.logs.streams import Tee
    from torchx_sched_local.request import PopenRequest
    from torchx_sched_local.supervise.supervision import Supervision
    from torchx_specs.model.dryrun import AppDryRunInfo


class PopenProtocol(Protocol):
    """What a started process has to have; :class:`subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Its exit code as far as it was waited for, negative for a signal."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end and returns the exit code."""

    def poll(self) -> int | None:
        """Returns the exit code, None while it runs."""

    def kill(self) -> None:
        """Ends it at once."""


class _LocalReplica:
    """A started replica.

    Args:
        role_name: its role
        replica_id: its index within the role
        proc: its process
        stdout: the file of its standard output
        stderr: the file of its standard error
        combined: what merges both, None if a supervision does
        error_file: where it leaves the error it ended with
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
        """Asks it, and what is in its process group, to end; closes its files."""
        self.signal(signal.SIGTERM)
        self.close_files()

    def signal(self, number: int) -> None:
        """Signals its process group, or the process alone if it leads none."""
        pid = self.proc.pid
        try:
            # what a subclass has started may be no process of this machine
            is_leader = type(pid) is int and pid > 1 and os.getpgid(pid) == pid
            if is_leader and self.is_alive():
                os.killpg(pid, number)
                return
        except ProcessLookupError:
            pass
        if self.is_alive():
            self.proc.kill()

    def ends_within(self, seconds: float | None) -> bool:
        """Waits for its end, for a limited time (None: without limit); returns whether it came."""
        import subprocess

        try:
            self.proc.wait(None if seconds is None else max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    def close_files(self) -> None:
        """Closes its files."""
        if self.combined is not None:
            self.combined.close()
        merged = None if self.combined is None else self.combined.out
        for file in (self.stdout, self.stderr, merged):
            if file is not None:
                file.close()

    def is_alive(self) -> bool:
        """Returns True while it runs."""
        return self.proc.poll() is None

    def failed(self) -> bool:
        """Returns True if it has ended with another exit code than 0."""
        return not self.is_alive() and self.proc.returncode != 0

    def __repr__(self) -> str:
        return f"_LocalReplica({self.role_name}/{self.replica_id}, pid={self.proc.pid})"


class _LocalAppDef:
    """An app that this process has started.

    Args:
        id: its id
        log_dir: its folder
        dryrun_info: what it was started from
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
        #: Supervises it; None if a subclass does so in its own way.
        self.supervision: Supervision | None = None

    def add_replica(self, role_name: str, replica: _LocalReplica) -> None:
        """Adds a started replica, or puts it in the place of the earlier attempt's."""
        replicas = self.role_replicas.setdefault(role_name, [])
        k = replica.replica_id
        if k < len(replicas) and replicas[k].replica_id == k:
            replicas[k] = replica
        else:
            replicas.append(replica)

    def set_state(self, state: AppState) -> None:
        """Notes the state, and when it was noted."""
        self.last_updated = time.time()
        self.state = state

    def kill(self) -> None:
        """Ends all replicas: asks them, gives them time, kills them.

        Raises:
            BackendError: even killed, some do not end
        """
        if self.supervision is not None:
            self.supervision.cancel_soon()
            self.supervision.wait_for_end()
            return
        replicas = [replica for role in self.role_replicas.values() for replica in role]
        for replica in replicas:
            replica.signal(signal.SIGTERM)
        from torchx_sched_local.supervise.terminate import GRACE

        deadline = time.monotonic() + GRACE
        for replica in replicas:
            if not replica.ends_within(deadline - time.monotonic()):
                replica.signal(signal.SIGKILL)
                replica.proc.wait()

    def wait(self, timeout: float | None) -> bool:
        """Waits for its end, for a limited time in seconds; returns whether it came."""
        if self.supervision is not None:
            return self.supervision.ended.wait(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        return all(
            replica.ends_within(None if deadline is None else deadline - time.monotonic())
            for role in self.role_replicas.values()
            for replica in role
        )

    def close(self) -> None:
        """Ends all replicas, closes their files and writes the file that says how it ended."""
        self.kill()
        if self.supervision is None:
            for role in self.role_replicas.values():
                for replica in role:
                    replica.close_files()
            self._write_success()

    def get_structured_error_msg(self) -> str:
        """Returns the first error that a replica has left, as compact JSON, or ``<NONE>``."""
        path = self._get_error_file()
        if path is None:
            return NONE
        from torchx_sched_local.describe import read_error

        return read_error(path)

    def _get_error_file(self) -> str | None:
        found: list[tuple[int, str]] = []
        for role in self.role_replicas.values():
            for replica in role:
                try:
                    found.append((os.stat(replica.error_file).st_mtime_ns, replica.error_file))
                except (OSError, TypeError):
                    pass
        return min(found)[1] if found else None

    def _write_success(self) -> None:
        from torchx_sched_local.store.success_file import ended_replica, write_success

        def name(file: Any) -> str:
            return str(getattr(file, "name", NA))

        roles = {
            role: [
                ended_replica(
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
        try:
            write_success(self.log_dir, self.id, self.state, self.last_updated, roles)
        except OSError:
            pass  # it only repeats what is known

    def __repr__(self) -> str:
        pids = {
            role: [replica.proc.pid for replica in replicas]
            for role, replicas in self.role_replicas.items()
        }
        return f"{{app_id:{self.id}, state:{self.state.name}, pid_map:{pids}}}"
