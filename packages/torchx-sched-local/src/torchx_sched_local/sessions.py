"""Starts commands in the environment of a local app's replica, and connects to its ports."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_kit.role_checks import check_replica
from torchx_kit.sessions.ports import connect_loopback
from torchx_kit.sessions.process import ProcessSession
from torchx_sched_local.scheduler import LocalScheduler
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, is_alive
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.sessions import (
    ReplicaNotRunningError,
    Session,
    Sessions,
    TerminalSize,
)

if TYPE_CHECKING:
    from torchx_sched_local.store.app_run import AppRun
    from torchx_sched_local.store.stored_app import StoredApp


class LocalSessions(Sessions[LocalScheduler]):
    """Runs commands beside the replicas of local apps; see :class:`Sessions`."""

    def open(
        self,
        app_id: str,
        role: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command with the environment and the directory of a replica's first process.

        The command is not a process of the app: it continues if the app ends.

        Raises:
            ReplicaNotRunningError: The replica does not run.
            UnknownReplicaError: The app has no such replica.
            ProgramNotFoundError: The program does not exist or cannot be run.
            BackendError: The replica runs on another machine, its environment cannot be read, or
                this machine cannot start a process.
        """
        stored = self.scheduler._existing(app_id)
        process = _process(stored, role, k)
        if process_table.IS_LINUX:
            env = _read_environ(process, role, k)
            cwd: str | None = f"/proc/{process.pid}/cwd"
        else:
            env, cwd = _recorded(stored, role, k)
        _forget_replica(env)
        _check_alive(process, role, k)
        return ProcessSession(command, tty=tty, stdin=stdin, env=env, cwd=cwd)

    def connect(self, app_id: str, role: str, k: int, port: int) -> socket.socket:
        """Connect to a port of this machine, if the replica runs; see :meth:`Sessions.connect`.

        Raises:
            ReplicaNotRunningError: The replica does not run.
            UnknownReplicaError: The app has no such replica.
            NotListeningError: Nothing listens on the port.
            BackendError: The replica runs on another machine.
        """
        _process(self.scheduler._existing(app_id), role, k)
        return connect_loopback(port, f"{role}/{k}")


def _read_environ(process: ProcessId, role: str, k: int) -> dict[str, str]:
    """Return the environment of a replica's first process."""
    try:
        environ = process_table.read_environ(process.pid)
    except OSError as e:
        raise BackendError(
            f"cannot read the environment of {role}/{k} (process {process.pid}): {e.strerror}"
        ) from None
    if environ is None:
        _check_alive(process, role, k)
        raise BackendError(
            f"this user may not read the environment of {role}/{k} (process {process.pid})"
        )
    pairs = (os.fsdecode(item).partition("=") for item in environ.split(b"\0"))
    return {name: value for name, sign, value in pairs if sign and name}


def _process(stored: StoredApp, role: str, k: int) -> ProcessId:
    """Return the first process of a replica; raise an error unless it runs on this machine."""
    run: AppRun = stored.refresh()
    check_replica(run.app_id, {name: len(found) for name, found in run.roles.items()}, role, k)
    replica = run.roles[role][k]
    if is_terminal(run.state) or is_terminal(replica.state):
        state = replica.state if is_terminal(replica.state) else run.state
        raise ReplicaNotRunningError(f"{role}/{k} of app {run.app_id} has ended ({state.name})")
    if run.node and run.node != os.uname().nodename:
        raise BackendError(f"app {run.app_id} runs on {run.node}; run this command there")
    if replica.state != AppState.RUNNING or replica.process is None:
        raise ReplicaNotRunningError(f"{role}/{k} of app {run.app_id} has not started")
    _check_alive(replica.process, role, k)
    return replica.process


def _check_alive(process: ProcessId, role: str, k: int) -> None:
    if not is_alive(process):
        raise ReplicaNotRunningError(f"{role}/{k} has ended")


def _recorded(stored: StoredApp, role: str, k: int) -> tuple[dict[str, str], str | None]:
    """Return a replica's environment and directory from the request, on systems without /proc."""
    request = stored.request
    if request is None:
        raise BackendError(f"app {stored.data['app_id']} has no record of its environment")
    replica = request.role_params[role][k]
    return {**os.environ, **replica.env}, replica.cwd


def _forget_replica(env: dict[str, str]) -> None:
    """Remove the replica's token, so that the command does not count as a process of the app."""
    outer, _, _ = env.pop(process_table.ENV_REPLICA, "").rpartition("\n")
    if outer:
        env[process_table.ENV_REPLICA] = outer
