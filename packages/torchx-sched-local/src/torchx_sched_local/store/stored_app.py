"""An app that another process may have started, read from its folder."""

from __future__ import annotations

import os
import time
from typing import Any

from torchx_kit.logs.file_logs import Tail, log_lines
from torchx_sched_local.errors import NoLogError
from torchx_sched_local.logs.replica_log import ReplicaLog, log_path
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store import index
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.store.load_app import (
    find_end,
    load_app,
    load_request,
    may_retry,
    new_run,
)
from torchx_sched_local.supervise import process_table, processes
from torchx_sched_local.supervise.terminate import terminate_all
from torchx_specs.errors import BackendError, SerializationError
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.api import Stream

# How long a supervisor may take to record the end of an app whose processes have ended.
_SUPERVISOR_SECONDS = 20.0
# How long a state that was read counts as current.
_FRESH_SECONDS = 0.1


class StoredApp:
    """An app, read from its folder when needed.

    Args:
        folder: The app's folder.
        data: The app in this folder, from :func:`~torchx_sched_local.store.load_app.load_app`.
    """

    def __init__(self, folder: AppFolder, data: dict[str, Any]) -> None:
        self.folder = folder
        self.data = data
        self._run = new_run(data)
        self._position = 0
        self._is_damaged = False
        self._refreshed = -_FRESH_SECONDS
        self._request: PopenRequest | None = None
        self._app: AppDef | None = None

    @classmethod
    def find(cls, app_id: str) -> StoredApp | None:
        """Return the app with an id, or None if there is no such app.

        Raises:
            BackendError: The app's record cannot be read.
        """
        folder = index.find(app_id)
        data = load_app(folder) if folder else None
        if folder is None or data is None or data["app_id"] != app_id:
            return None
        return cls(folder, data)

    @property
    def request(self) -> PopenRequest | None:
        """The request, or None if it is not stored."""
        if self._request is None:
            self._request = load_request(self.folder, self._run)
        return self._request

    @property
    def app(self) -> AppDef | None:
        """The submitted app, or None if it is not stored."""
        if self._app is None and self.data["appdef"] is not None:
            from torchx_specs.formats import serialize

            try:
                self._app = serialize.from_dict(self.data["appdef"])
            except SerializationError:
                return None  # written by another version
        return self._app

    def refresh(self) -> AppRun:
        """Read the new events in the journal, and return the current state of the app.

        If the app has ended without a record of its end, the end is recorded now.
        """
        self._refreshed = time.monotonic()
        self._read_journal()
        run = self._run
        if is_terminal(run.state) and not self._is_damaged:
            return run
        outcome = self.folder.read_success()
        if outcome is not None:
            run.take_outcome(outcome)
        if is_terminal(run.state):
            self._is_damaged = False
            return run
        run.state, run.msg = AppState.RUNNING, ""
        if self._is_supervised():
            if run.supervisor is None and not self._has_processes():
                run.state = AppState.SUBMITTED
            return run
        # The app may have ended since the journal was read.
        self._read_journal()
        if is_terminal(run.state):
            return run
        if self._has_processes():
            run.msg = "its supervisor has died; cancel the app to end its processes"
        else:
            self._record_end()
        return run

    def has_ended(self) -> bool:
        """Return True if the app has ended."""
        return is_terminal(self.refresh().state)

    def is_final(self, role: str, k: int) -> bool:
        """Return True if nothing more is written to the logs of a replica."""
        # A reader of many logs calls this for each replica, and must not refresh every time.
        run = self._run if self._is_fresh() else self.refresh()
        return is_terminal(run.state) or run.roles[role][k].is_final(may_retry(self.data))

    def log(self, role: str, k: int, stream: Stream | None) -> ReplicaLog:
        """Return a log of a replica.

        Raises:
            UnknownReplicaError: There is no such replica.
            NoLogError: The replica writes no such log, or the request is not stored.
        """
        if self.request is None:
            raise NoLogError(
                f"cannot find the logs of app {self.data['app_id']}: the file"
                f" {self.folder.path}/.torchx/request.json is missing or damaged"
            )
        if not self._is_fresh():
            self.refresh()  # if everything died at once, this completes the log
        path = log_path(self.request, role, k, stream)
        run = self._run
        never_started = is_terminal(run.state) and run.roles[role][k].restarts < 0
        return ReplicaLog(
            path, lambda: self.is_final(role, k), self.folder.journal, may_be_missing=never_started
        )

    def wait(self, timeout: float | None) -> None:
        """Wait until the app has ended or was deleted, at most ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        check_every = 2.0 if timeout is None else min(2.0, max(timeout, 0.0))

        def is_over() -> bool:
            has_ended = not self.folder.exists() or self.has_ended()
            return has_ended or (deadline is not None and time.monotonic() >= deadline)

        journal = self.folder.journal
        for _ in log_lines(journal, tail=Tail(is_over, [journal], check_every)):
            pass

    def cancel(self, grace: float | None = None) -> None:
        """Cancel the app, and wait until it has ended.

        This process ends the app's processes, because the supervisor may be stopped or dead. A
        supervisor that is alive records the end.

        Args:
            grace: How long the processes have to end by themselves, in seconds; None means
                :data:`~torchx_sched_local.supervise.terminate.GRACE_SECONDS`.

        Raises:
            BackendError: The app cannot be ended.
        """
        run = self.refresh()
        if is_terminal(run.state) and self.folder.read_end() is not None:
            return
        self._check_node()
        try:
            self.folder.mark_cancelled()
        except FileNotFoundError:
            return  # another process has deleted the app
        except OSError as e:
            raise BackendError(f"cannot cancel app {run.app_id}: {e.strerror or e}") from e
        terminate_all(self._processes, grace)
        if self._is_supervised():
            self.wait(_SUPERVISOR_SECONDS)
        else:
            self._record_end(blocking=True)
        if self.folder.exists() and not is_terminal(self.refresh().state):
            raise BackendError(
                f"the processes of app {run.app_id} have ended, but its supervisor (process"
                f" {run.supervisor.pid if run.supervisor else '?'}) did not record that within"
                f" {_SUPERVISOR_SECONDS:.0f} seconds"
            )

    def delete(self) -> None:
        """Cancel the app if it runs, and delete its folder.

        Raises:
            BackendError: The folder cannot be deleted, or the app cannot be ended.
        """
        self.cancel()
        try:
            self.folder.delete()
        except OSError as e:
            raise BackendError(f"cannot delete {self.folder.path}: {e.strerror or e}") from e
        index.remove(self._run.app_id)

    def _processes(self) -> set[processes.ProcessId]:
        self._read_journal()
        return self._run.find_processes()

    def _is_fresh(self) -> bool:
        """Return True if the state was just read and the journal has not grown since."""
        is_recent = time.monotonic() - self._refreshed < _FRESH_SECONDS
        return is_recent and self.folder.journal_size() == self._position

    def _read_journal(self) -> None:
        if self.folder.journal_size() < self._position:
            self._position = 0  # truncated; applying an event again changes nothing
        events, self._position, is_damaged = self.folder.read_events(self._position)
        for event in events:
            is_damaged |= not self._run.apply(event)
        self._is_damaged |= is_damaged

    def _has_processes(self) -> bool:
        return bool(self._run.find_processes())

    def _record_end(self, blocking: bool = False) -> None:
        """Record the end of an app whose supervisor and processes have died.

        If that is not possible, other processes find out the same.
        """
        from torchx_sched_local.supervise.reap import record_end

        run = self._run
        try:
            record_end(AppFolder(self.folder.path), run.app_id, blocking=blocking)
        except (OSError, BackendError):
            pass
        self._read_journal()
        if not is_terminal(run.state):
            run.state, run.msg = find_end(self.folder, run, has_processes=False)

    def _check_node(self) -> None:
        node = self._run.node
        if node and node != os.uname().nodename:
            raise BackendError(
                f"app {self._run.app_id} runs on {node}; cancel or delete it on that machine"
            )

    def _is_supervised(self) -> bool:
        run = self._run
        if run.node and run.node != os.uname().nodename:
            return True  # another machine; its processes are not visible here
        if run.boot and run.boot != process_table.boot_id():
            return False
        if run.pid_namespace and run.pid_namespace != process_table.pid_namespace():
            return True  # another container, or the host; its processes are not visible here
        # Until the supervisor is recorded, check the process that submitted the app instead.
        known = [run.supervisor, run.guard] if run.supervisor else [run.starter]
        return any(process is not None and processes.is_alive(process) for process in known)
