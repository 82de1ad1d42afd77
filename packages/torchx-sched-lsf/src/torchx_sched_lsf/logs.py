"""The log files of replicas."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_kit.jobs.logs import FileLogs, ReplicaLog
from torchx_kit.role_checks import check_replica
from torchx_sched_lsf.job_files.records import LsfRecord
from torchx_sched_lsf.names import cleanup_str, log_name

if TYPE_CHECKING:
    from torchx_sched_lsf.scheduler import LsfScheduler


class LsfLogs(FileLogs["LsfScheduler"]):
    """Reads the files that LSF writes in the directory of the app."""

    def find(self, app_id: str, role: str, k: int) -> ReplicaLog:
        """Return the log of a replica; see :meth:`FileLogs.find`."""
        is_running = self.is_running(app_id)
        host, entry = self.scheduler._host, self.scheduler._entry(app_id)
        watch: Sequence[str] = ()
        if entry is None:  # the app was submitted from another machine, or by another user
            base = posixpath.join(host.resolve(), log_name(app_id, cleanup_str(role), k))
        else:
            check_replica(app_id, {r.name: len(r.jobs) for r in entry.roles}, role, k)
            number = [r.name for r in entry.roles].index(role)
            base = entry.log(number, k)
            watch = [LsfRecord(host, entry).replica_path(number, k)]
        report = f"{base}.submit.out"
        return ReplicaLog(
            host,
            base,
            is_running,
            is_finished=lambda: self.has_ended(app_id),
            watch=watch,
            missing_hint=lambda: f"see {report}" if host.exists(report) else "",
        )
