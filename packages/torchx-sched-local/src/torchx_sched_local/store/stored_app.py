"""An app that another process may have started, read from its folder."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from torchx_kit.logs.file_logs import FileLog, Tail, log_lines
from torchx_sched_local.errors import NoLogError
from torchx_sched_local.logs.replica_log import log_path, replica_lines
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store import index
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise.processes.replica_processes import ProcessId
from torchx_sched_local.supervise.processes.terminate import terminate_all
from torchx_specs.errors import BackendError, SerializationError
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_specs.schedulers.closing import Closing
    from torchx_specs.schedulers.logs import LogQuery

# How long a supervisor may take to record the end of an app whose processes have ended.
_SUPERVISOR_SECONDS = 20.0
# After this time, in seconds, the state in memory is refreshed from the record before its use.
_FRESH_SECONDS = 0.1


class StoredApp:
    """An app, read from its folder when needed.

    Args:
        folder: The app's folder.
        run: The app's state, as :meth:`AppFolder.read` returns it.
        position: Up to here, the journal was read.
    """

    def __init__(self, folder: AppFolder, run: AppRun, position: int = 0) -> None:
        self.folder = folder
        self.data = run.data
        self._run = run
        self._lock = threading.Lock()
        self._position = position
        self._refreshed = -_FRESH_SECONDS
        self._app: AppDef | None = None
        # The index, if this is an element of an array.
        self._element: int | None = None

    @classmethod
    def find(cls, app_id: str) -> StoredApp | None:
        """Return the app with an id, or None if there is no such app.

        Raises:
            BackendError: The app's record cannot be read.
        """
        folder = index.find(app_id)
        return None if folder is None else cls.read(folder.path, app_id)

    @classmethod
    def read(cls, path: str, app_id: str) -> StoredApp | None:
        """Return the app in a folder, or None if it has another id.

        Raises:
            BackendError: The app's record cannot be read.
        """
        folder = AppFolder(path)
        run, position = folder.read()
        return cls(folder, run, position) if run.app_id == app_id else None

    @property
    def request(self) -> PopenRequest | None:
        """The request, or None if it is not stored or its record is damaged."""
        return self._run.request

    @property
    def app(self) -> AppDef | None:
        """The submitted app, or None if it is not stored or cannot be decoded."""
        if self._app is None and self.data["appdef"] is not None:
            from torchx_specs.formats import serialize

            try:
                self._app = serialize.from_dict(self.data["appdef"])
            except SerializationError:
                return None  # another version of TorchX may have written the file
        return self._app

    @property
    def element_names(self) -> list[str]:
        """The names of the apps in an array, by index; empty if the app is no array."""
        return self.data["elements"] or []

    def refresh(self) -> AppRun:
        """Read the new events in the journal, and return the current state of the app.

        If the app has ended without a record of its end, the end is recorded now. An app with the
        option ``requeue`` that ran when the machine restarted is started again.
        """
        self._refreshed = time.monotonic()
        run = self._run if is_terminal(self._run.state) else self._read_journal()
        if is_terminal(run.state):
            return run
        run.reset_state()
        if self._is_supervised():
            is_new = run.supervisor is None and not run.num_restarts and not run.is_damaged
            if is_new and not self._has_processes():
                run.state = AppState.SUBMITTED
            return run
        # The app may have ended since the journal was read.
        run = self._read_journal()
        if is_terminal(run.state):
            return run
        if self._has_processes():
            run.msg = "its supervisor has died; cancel the app to end its processes"
        else:
            self._settle()
        return self._run

    def has_ended(self) -> bool:
        """Return True if the app has ended."""
        return is_terminal(self.refresh().state)

    def is_final(self, role: str, k: int) -> bool:
        """Return True if nothing more is written to the logs of a replica."""
        # A reader of many logs calls this for each replica, and must not refresh every time.
        run = self._run if self._is_fresh() else self.refresh()
        # A cancelled replica may have processes left that still write.
        has_ended = run.roles[role][k].state in (AppState.SUCCEEDED, AppState.FAILED)
        return is_terminal(run.state) or (has_ended and not run.may_retry)

    def log(self, role: str, k: int, query: LogQuery, closing: Closing | None = None) -> FileLog:
        """Return lines of a log of a replica, which ``closing`` ends if the log is followed.

        Raises:
            UnknownReplicaError: There is no such replica.
            NoLogError: The replica writes no such log, or the request is not stored.
        """
        if self.request is None:
            raise NoLogError(
                f"cannot find the logs of app {self.data['app_id']}: its request in"
                f" {self.folder.journal} is missing or damaged"
            )
        if not self._is_fresh():
            self.refresh()  # if the supervisor and its guard were killed, this completes the log
        path = log_path(self.request, role, k, query.streams)
        run = self._run
        never_started = is_terminal(run.state) and run.roles[role][k].restarts < 0
        return replica_lines(
            path, query, lambda: self.is_final(role, k), self.folder.journal, never_started, closing
        )

    def wait(self, timeout: float | None, closing: Closing | None = None) -> None:
        """Wait until the app has ended or was deleted, at most ``timeout`` seconds if not None.

        ``closing`` ends the wait early.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        check_every = 2.0 if timeout is None else min(2.0, max(timeout, 0.0))

        def is_over() -> bool:
            has_ended = not self.folder.exists() or self.has_ended()
            return has_ended or (deadline is not None and time.monotonic() >= deadline)

        if is_over():
            return
        journal = self.folder.journal
        for _ in log_lines(journal, tail=Tail(is_over, [journal], check_every, closing=closing)):
            pass

    def cancel(self, grace: float | None = None) -> None:
        """Cancel the app, and wait until it has ended.

        This process ends the app's processes, because the supervisor may be stopped or dead. A
        supervisor that is alive records the end.

        Args:
            grace: How long the processes have to end by themselves, in seconds; None means
                :data:`~torchx_sched_local.supervise.processes.terminate.GRACE_SECONDS`.

        Raises:
            BackendError: The app cannot be ended, for example because it runs on another machine.
        """
        run = self.refresh()
        if is_terminal(run.state):
            return
        self._check_node()
        try:
            self.folder.mark_cancelled(self._element)
        except FileNotFoundError:
            return  # another process has deleted the app
        except OSError as e:
            raise BackendError(f"cannot cancel app {run.app_id}: {e.strerror or e}") from e
        terminate_all(self._processes, grace)
        if self._is_supervised():
            self.wait(_SUPERVISOR_SECONDS)
        else:
            self._settle(must_end=True)
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

    def _processes(self) -> set[ProcessId]:
        return self._read_journal().find_processes()

    def _is_fresh(self) -> bool:
        """Return True if the state was just read and the journal has not grown since."""
        is_recent = time.monotonic() - self._refreshed < _FRESH_SECONDS
        return is_recent and self.folder.journal_size() == self._position

    def _read_journal(self) -> AppRun:
        """Read the new events in the journal, and return the state of the app."""
        with self._lock:  # several threads may read the app
            if self.folder.journal_size() < self._position:
                # The journal was truncated: only what is left of it is known.
                self._run, self._position = AppRun(self.data, self.request), 0
                self._run.is_damaged = True
            events, self._position, is_damaged = self.folder.read_events(self._position)
            # An intact journal is never empty: it begins with the app.
            self._run.is_damaged |= is_damaged or not self._position
            self._run.apply_all(events)
            return self._run

    def _has_processes(self) -> bool:
        return bool(self._run.find_processes())

    def _settle(self, must_end: bool = False) -> None:
        """End or continue an app whose supervisor and processes have died; see :func:`.settle`.

        If the end cannot be recorded, every process that reads the app determines it again.
        """
        from torchx_sched_local.supervise.reap import find_end, settle

        try:
            settle(AppFolder(self.folder.path), self._run.app_id, must_end=must_end)
        except BlockingIOError:
            return  # another process has just started to supervise the app, or records its end
        except (OSError, BackendError):
            pass
        is_supervised = self._is_supervised()
        run = self._read_journal()
        if not is_supervised and not is_terminal(run.state):
            run.state, run.msg, _ = find_end(self.folder, run, has_processes=False)

    def _check_node(self) -> None:
        node = self._run.node
        if node and node != os.uname().nodename:
            raise BackendError(
                f"app {self._run.app_id} runs on {node}; cancel or delete it on that machine"
            )

    def _is_supervised(self) -> bool:
        """Return True if another process, perhaps on another machine, will record the app's end."""
        node = self._run.node
        return bool(node and node != os.uname().nodename) or self.folder.is_locked()
