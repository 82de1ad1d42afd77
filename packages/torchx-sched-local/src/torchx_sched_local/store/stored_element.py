"""An element of an array, as an app with one replica."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.jobs.arrays import element_id
from torchx_kit.role_checks import check_replica
from torchx_sched_local.errors import single_element_error
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.store.stored_app import StoredApp
from torchx_sched_local.supervise.processes.replica_processes import ProcessId
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_kit.logs.file_logs import FileLog
    from torchx_specs.schedulers.closing import Closing
    from torchx_specs.schedulers.logs import LogQuery


class StoredElement(StoredApp):
    """An element of an array; its replica has the index 0.

    Args:
        array: The array.
        k: The index of the element.
    """

    def __init__(self, array: StoredApp, k: int) -> None:
        self.array = array
        self._app_id = element_id(array.data["app_id"], k)
        (role,) = array.data["roles"]
        self._role = role["name"]
        data = {
            **array.data,
            "app_id": self._app_id,
            "name": array.element_names[k],
            "roles": [{**role, "replicas": 1}],
            "elements": None,
        }
        request = array.request and PopenRequest(
            self._app_id,
            array.request.log_dir,
            {self._role: [array.request.role_params[self._role][k]]},
            {self._role: [array.request.role_log_dirs[self._role][k]]},
        )
        super().__init__(array.folder, AppRun(data, request))
        self._element = self._k = k

    @property
    def app(self) -> AppDef | None:
        """The submitted app of this element, or None if the records are damaged."""
        request, app = self.array.request, self.array.app
        if request is None or not request.elements or app is None:
            return None
        name, args, env = request.elements[self._k]
        role = replace(app.roles[0], args=args, env=env, num_replicas=1)
        return replace(app, name=name, roles=[role])

    def refresh(self) -> AppRun:
        """Return the state of this element."""
        array = self.array.refresh()
        run = self._run = AppRun(self.data, self.request)
        run.supervisor, run.boot, run.node = array.supervisor, array.boot, array.node
        replica = copy.copy(array.element(self._k))
        replica.id = 0
        run.roles[self._role][0] = replica
        run.state, run.msg = replica.state, replica.reason
        if replica.state == AppState.PENDING and not replica.reason:
            limit = self.array.request.max_parallel if self.array.request else None
            run.msg = array.waiting or f"waits until fewer than {limit} elements of the array run"
        run.num_restarts = max(replica.restarts, 0)
        run.started = replica.started
        run.last_updated = replica.ended or array.last_updated
        return run

    def is_final(self, role: str, k: int) -> bool:
        """Return True if nothing more is written to the logs of the element."""
        return self.array.is_final(role, self._k)

    def log(self, role: str, k: int, query: LogQuery, closing: Closing | None = None) -> FileLog:
        """Return lines of a log of the element; see :meth:`StoredApp.log`."""
        check_replica(self._app_id, {self._role: 1}, role, k)
        return self.array.log(role, self._k, query, closing)

    def delete(self) -> None:
        """Raise RequestError, because only a whole array can be deleted."""
        raise single_element_error(self._app_id, self.array.data["app_id"])

    def _processes(self) -> set[ProcessId]:
        run = self.array.refresh()
        return run.find_processes([run.roles[self._role][self._k]])

    def _is_supervised(self) -> bool:
        return self.array._is_supervised()

    def _settle(self, must_end: bool = False) -> None:
        self.array.refresh()
