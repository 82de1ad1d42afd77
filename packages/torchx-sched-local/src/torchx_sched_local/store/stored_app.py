"""An app that another process may have started, read from its folder."""

from __future__ import annotations

import copy
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.jobs.arrays import element_id
from torchx_kit.logs.file_logs import FileLog, Tail, log_lines
from torchx_kit.role_checks import check_replica
from torchx_sched_local.errors import NoLogError, single_element_error
from torchx_sched_local.logs.replica_log import log_path, replica_lines
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store import index
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, terminate_all
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
        folder: The app's folder, which was read.

    Attributes:
        folder: The app's folder.
        data: The data of an :class:`AppRun`.
    """

    def __init__(self, folder: AppFolder) -> None:
        self.folder = folder
        self.data = folder.run.data
        self._lock = threading.Lock()
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
        return cls(folder) if folder.read().app_id == app_id else None

    @property
    def request(self) -> PopenRequest | None:
        """The request, or None if it is not stored or its record is damaged."""
        return self.folder.run.request

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
        run = self.folder.run if is_terminal(self.folder.run.state) else self._update()
        if is_terminal(run.state):
            return run
        run.reset_state()
        if self._is_supervised():
            is_new = run.supervisor is None and not run.num_restarts and not run.is_damaged
            if is_new and not run.find_processes():
                run.state = AppState.SUBMITTED
            return run
        # The app may have ended since the journal was read.
        run = self._update()
        if is_terminal(run.state):
            return run
        if run.find_processes():
            run.msg = "its supervisor has died; cancel the app to end its processes"
        else:
            self._settle()
        return self.folder.run

    def has_ended(self) -> bool:
        """Return True if the app has ended."""
        return is_terminal(self.refresh().state)

    def is_final(self, role: str, k: int) -> bool:
        """Return True if nothing more is written to the logs of a replica."""
        # A reader of many logs calls this for each replica, and must not refresh every time.
        run = self.folder.run if self._is_fresh() else self.refresh()
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
        run = self.folder.run
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
                :data:`~torchx_sched_local.supervise.processes.replica_processes.GRACE_SECONDS`.

        Raises:
            BackendError: The app cannot be ended, for example because it runs on another machine.
        """
        run = self.refresh()
        if is_terminal(run.state):
            return
        if self._is_elsewhere():
            raise BackendError(
                f"app {run.app_id} runs on {run.node}; cancel or delete it on that machine"
            )
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
        index.remove(self.data["app_id"])

    def _processes(self) -> set[ProcessId]:
        run = self._update()
        return run.find_processes(
            None if self._element is None else [run.replica(0, self._element)]
        )

    def _is_fresh(self) -> bool:
        """Return True if the state was just read and the journal has not grown since."""
        is_recent = time.monotonic() - self._refreshed < _FRESH_SECONDS
        return is_recent and self.folder.journal_size() == self.folder.position

    def _update(self) -> AppRun:
        with self._lock:  # several threads may read the app
            return self.folder.update()

    def _settle(self, must_end: bool = False) -> None:
        """End or continue an app whose supervisor and processes have died; see :func:`.settle`.

        If the end cannot be recorded, every process that reads the app determines it again.
        """
        from torchx_sched_local.supervise.guard import find_end, settle

        try:
            settle(AppFolder(self.folder.path), self.data["app_id"], must_end=must_end)
        except BlockingIOError:
            return  # another process has just started to supervise the app, or records its end
        except (OSError, BackendError):
            pass
        is_supervised = self._is_supervised()
        run = self._update()
        if not is_supervised and not is_terminal(run.state):
            run.state, run.msg = find_end(self.folder, has_processes=False)

    def _is_supervised(self) -> bool:
        """Return True if another process, perhaps on another machine, will record the app's end."""
        return self._is_elsewhere() or self.folder.is_locked()

    def _is_elsewhere(self) -> bool:
        """Return True if the app runs on another machine."""
        return self.folder.run.node not in ("", os.uname().nodename)


class StoredElement(StoredApp):
    """An element of an array, as an app with one replica, whose index is 0.

    Args:
        array: The array.
        k: The index of the element.
    """

    def __init__(self, array: StoredApp, k: int) -> None:
        super().__init__(array.folder)
        self._array = array
        self._lock = array._lock  # one lock for all that read the folder
        self._element = self._k = k
        (role,) = array.data["roles"]
        self._role: str = role["name"]
        self.data = {
            **array.data,
            "app_id": element_id(array.data["app_id"], k),
            "name": array.element_names[k],
            "roles": [{**role, "replicas": 1}],
            "elements": None,
        }

    @property
    def request(self) -> PopenRequest | None:
        """The request of this element, or None if the array's is not known."""
        array = self._array.request
        return array and PopenRequest(
            self.data["app_id"],
            array.log_dir,
            {self._role: [array.role_params[self._role][self._k]]},
            {self._role: [array.role_log_dirs[self._role][self._k]]},
        )

    @property
    def app(self) -> AppDef | None:
        """The submitted app of this element, or None if the records are damaged."""
        request, app = self._array.request, self._array.app
        if request is None or not request.elements or app is None:
            return None
        name, args, env = request.elements[self._k]
        role = replace(app.roles[0], args=args, env=env, num_replicas=1)
        return replace(app, name=name, roles=[role])

    def refresh(self) -> AppRun:
        """Return the state of this element."""
        array = self._array.refresh()
        run = AppRun(self.data, self.request)
        run.supervisor, run.node = array.supervisor, array.node
        replica = copy.copy(array.element(self._k))
        replica.id = 0
        run.roles[self._role][0] = replica
        run.state, run.msg = replica.state, replica.reason
        if replica.state == AppState.PENDING and not replica.reason:
            limit = array.request.max_parallel if array.request else None
            run.msg = array.waiting or f"waits until fewer than {limit} elements of the array run"
        run.num_restarts = max(replica.restarts, 0)
        run.started = replica.started
        run.last_updated = replica.ended or array.last_updated
        return run

    def is_final(self, role: str, k: int) -> bool:
        """Return True if nothing more is written to the logs of the element."""
        return self._array.is_final(role, self._k)

    def log(self, role: str, k: int, query: LogQuery, closing: Closing | None = None) -> FileLog:
        """Return lines of a log of the element; see :meth:`StoredApp.log`."""
        check_replica(self.data["app_id"], {self._role: 1}, role, k)
        return self._array.log(role, self._k, query, closing)

    def delete(self) -> None:
        """Raise RequestError, because only a whole array can be deleted."""
        raise single_element_error(self.data["app_id"], self._array.data["app_id"])

    def _settle(self, must_end: bool = False) -> None:
        self._array.refresh()  # the other elements may continue
