"""The log files of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_kit.jobs.logs import FileLogs, ReplicaLog
from torchx_kit.role_checks import check_replica
from torchx_sched_sge.records import app_record
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_sge.scheduler import SgeScheduler


class SgeLogs(FileLogs["SgeScheduler"]):
    """Reads the files that Grid Engine writes in the directory of the app."""

    def find(self, app_id: str, role: str, k: int) -> ReplicaLog:
        """Return the log of a replica; see :meth:`FileLogs.find`."""
        is_running = self.is_running(app_id)
        host, entry = self.scheduler._host, self.scheduler._index.get(app_id)
        if entry is None:
            raise BackendError(
                f"app {app_id} was submitted with another TORCHX_HOME, so the directory of its logs"
                " is unknown; run this where the app was submitted"
            )
        check_replica(app_id, {r.name: r.num_replicas for r in entry.roles}, role, k)
        number = [r.name for r in entry.roles].index(role)
        watch = [app_record(host, entry).replica_path(number, k)]
        return ReplicaLog(
            host, entry.log(number, k), is_running, lambda: self.has_ended(app_id), watch
        )
