"""Apps of other processes, by their folders."""

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
from torchx_sched_local.supervise import process_table, processes
from torchx_sched_local.supervise.terminate import end_all
from torchx_specs.errors import BackendError
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.api import Stream

# How long a supervisor may take to write the end of an app whose processes have ended, in seconds.
_SUPERVISOR_SECONDS = 20.0
# How long it is believed that the supervisor still lives, in seconds.
_FRESH_SECONDS = 0.1


class StoredApp:
    """An app as its folder has it; everything is read when it is first asked for.

    Args:
        folder: its folder
        data: the content of its ``app.json``
    """

    def __init__(self, folder: AppFolder, data: dict[str, Any]) -> None:
        self.folder = folder
        self.data = data
        self._run = AppRun(data["app_id"], {r["name"]: r["replicas"] for r in data["roles"]})
        self._position = 0
        self._refreshed = -_FRESH_SECONDS
        self._request: PopenRequest | None = None
        self._app: AppDef | None = None

    @classmethod
    def find(cls, app_id: str) -> StoredApp | None:
        """Returns an app by its id, None if there is none."""
        folder = index.find(app_id)
        data = folder.read_app() if folder else None
        if folder is None or data is None or data.get("app_id") != app_id:
            return None
        return cls(folder, data)

    @property
    def request(self) -> PopenRequest | None:
        """How its processes are started."""
        if self._request is None:
            self._request = self.folder.read_request()
        return self._request

    @property
    def app(self) -> AppDef | None:
        """What was submitted, None if it could not be stored."""
        if self._app is None and self.data.get("appdef") is not None:
            from torchx_specs.formats import serialize

            self._app = serialize.from_dict(self.data["appdef"])
        return self._app

    def refresh(self) -> AppRun:
        """Returns the state as it is now."""
        self._refreshed = time.monotonic()
        self._read_journal()
        run = self._run
        if is_terminal(run.state):
            return run
        if run.supervisor is None:
            run.state = AppState.SUBMITTED
            return run
        run.state, run.msg = AppState.RUNNING, ""
        if not self._is_supervised():
            # it may have ended while we looked
            self._read_journal()
            if not is_terminal(run.state):
                self._judge_lost()
        return run

    def has_ended(self) -> bool:
        """Returns True if the app has ended; quick."""
        return is_terminal(self.refresh().state)

    def is_final(self, role: str, k: int) -> bool:
        """Returns True once nothing more comes of a replica."""
        # of an app with many replicas this is asked for each, one after the other
        run = self._run if self._is_fresh() else self.refresh()
        may_retry = any(role["max_retries"] for role in self.data["roles"])
        return is_terminal(run.state) or run.roles[role][k].is_final(may_retry)

    def log(self, role: str, k: int, stream: Stream | None) -> ReplicaLog:
        """Returns a log of a replica.

        Raises:
            UnknownReplicaError: there is no such replica
            NoLogError: nobody knows where it has its logs
        """
        if self.request is None:
            raise NoLogError(f"nobody knows where app {self.data['app_id']} has its logs")
        path = log_path(self.request, role, k, stream)
        return ReplicaLog(path, lambda: self.is_final(role, k), self.folder.journal)

    def wait(self, timeout: float | None) -> None:
        """Returns when the app has ended, or after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        check_every = 2.0 if timeout is None else min(2.0, max(timeout, 0.0))

        def is_over() -> bool:
            return self.has_ended() or (deadline is not None and time.monotonic() >= deadline)

        journal = self.folder.journal
        for _ in log_lines(journal, tail=Tail(is_over, [journal], check_every)):
            pass

    def cancel(self, grace: float | None = None) -> None:
        """Ends the app, and returns when it has ended.

        The processes are ended from here, as a supervisor may be stopped or gone; it is left to a
        living one to write down the end.

        Args:
            grace: seconds that the processes have to end by themselves, the usual time if None

        Raises:
            BackendError: it cannot be ended
        """
        run = self.refresh()
        if is_terminal(run.state) and self._is_on_disk():
            return
        self._check_node()
        try:
            self.folder.mark_cancelled()
        except OSError as e:
            raise BackendError(f"cannot cancel {run.app_id}: {e.strerror or e}") from e
        end_all(self._processes, grace)
        if self._is_supervised():
            self.wait(_SUPERVISOR_SECONDS)
        else:
            from torchx_sched_local.supervise.reap import reap

            reap(self.folder)
        if not is_terminal(self.refresh().state):
            raise BackendError(
                f"the processes of {run.app_id} were ended, but its supervisor (process"
                f" {run.supervisor.pid if run.supervisor else '?'}) has not written that down"
            )

    def delete(self) -> None:
        """Ends the app and removes its folder.

        Raises:
            BackendError: it cannot be removed
        """
        import shutil

        self.cancel()
        try:
            shutil.rmtree(self.folder.path)
        except FileNotFoundError:
            pass
        except OSError as e:
            raise BackendError(f"cannot remove {self.folder.path}: {e.strerror or e}") from e
        index.remove(self._run.app_id)

    def _processes(self) -> set[processes.ProcessId]:
        self._read_journal()
        return self._run.find_processes()

    def _is_fresh(self) -> bool:
        """Returns True if the state was looked at a moment ago and nothing was written since."""
        is_recent = time.monotonic() - self._refreshed < _FRESH_SECONDS
        return is_recent and self.folder.journal_size() == self._position

    def _read_journal(self) -> None:
        events, self._position = self.folder.read_events(self._position)
        for event in events:
            self._run.apply(event)

    def _is_on_disk(self) -> bool:
        return self.folder.read_end() is not None

    def _check_node(self) -> None:
        node = self._run.node
        if node and node != os.uname().nodename:
            raise BackendError(f"{self._run.app_id} runs on {node}; end it there")

    def _is_supervised(self) -> bool:
        run = self._run
        if run.node and run.node != os.uname().nodename:
            return True  # as far as can be told from here
        if run.boot and run.boot != process_table.boot_id():
            return False
        return any(
            process is not None and processes.is_alive(process)
            for process in (run.supervisor, run.guard)
        )

    def _judge_lost(self) -> None:
        run = self._run
        if run.boot and run.boot != process_table.boot_id():
            run.state, run.msg = AppState.FAILED, "the machine was restarted while it ran"
        elif any(processes.is_alive(leader.process) for leader in run.leaders()):
            run.msg = "nobody supervises it any more; cancel it to end its processes"
        else:
            run.state, run.msg = AppState.CANCELLED, "ended with the program that had started it"
