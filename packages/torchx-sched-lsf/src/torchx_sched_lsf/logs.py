"""The log files of replicas."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.jobs.logs import FileLogs, ReplicaLog
from torchx_sched_lsf.names import cleanup_str

if TYPE_CHECKING:
    from torchx_sched_lsf.scheduler import LsfScheduler


class LsfLogs(FileLogs["LsfScheduler"]):
    """Reads the files that LSF writes in the directory of the app."""

    def find(self, app_id: str, role: str, k: int) -> ReplicaLog:
        """Return the log of a replica; see :meth:`FileLogs.find`."""
        host = self.scheduler._host
        if self.scheduler._entry(app_id) is not None:
            log = super().find(app_id, role, k)
        else:  # the app was submitted from another machine, or by another user
            base = posixpath.join(host.resolve(), f"{app_id}-{cleanup_str(role)}-{k}")
            is_running = self.is_running(app_id)
            log = ReplicaLog(host, base, is_running, lambda: self.has_ended(app_id))
        report = f"{log.base}.submit.out"
        return replace(log, missing_hint=lambda: f"see {report}" if host.exists(report) else "")
