"""The log files of replicas."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from torchx_kit.jobs.logs import MAX_AGE_SECONDS, FileLogs, ReplicaLog
from torchx_kit.role_checks import check_replica
from torchx_sched_slurm.job_files.job_dirs import job_dirs
from torchx_sched_slurm.job_files.records import SlurmRecord
from torchx_sched_slurm.jobs import selector
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_slurm.scheduler import SlurmScheduler

# Maximum age of a description while the job's record has no outcome, in seconds. The record shows
# most ends; only the queue shows that Slurm killed the job or that the first node failed.
_QUEUE_SECONDS = 15.0


class SlurmLogs(FileLogs["SlurmScheduler"]):
    """Reads the files that the steps of a job write in the job's directory."""

    def find(self, app_id: str, role: str, k: int) -> ReplicaLog:
        """Return the log of a replica, which has the lines of earlier attempts, too."""
        host = self.scheduler._host
        app_id = self.scheduler._resolved(app_id)
        number, tracked = selector(app_id), job_dirs().get(app_id.replace("@", ";"))
        description = self.described(app_id)
        entry = self.scheduler._known(app_id)
        if description is None and tracked is None:
            raise BackendError(f"job {app_id} does not exist")
        index = 0
        if entry is not None and entry.roles:
            check_replica(app_id, entry.replicas, role, k)
            index = list(entry.replicas).index(role)
            base = entry.log(index, k)
        else:
            folder = entry.folder if entry else tracked
            name = f"slurm-{number}-{role.replace('/', '_')}-{k}"
            base = posixpath.join(folder or host.resolve(), name)
        record = SlurmRecord(host, entry.record) if entry else None
        return ReplicaLog(
            host,
            base,
            is_running=description is not None and not is_terminal(description.state),
            is_finished=lambda: self._is_finished(app_id, record),
            watch=record.end_files(index, k) if record else (),
            missing_hint=lambda: record.batch_log_hint(number) if record else "",
        )

    def _is_finished(self, app_id: str, record: SlurmRecord | None) -> bool:
        """Return whether a job has ended.

        Every call reads the job's record; the queue is queried at most every few seconds.
        """
        outcome = SlurmRecord(record.host, record.path).outcome if record else None
        last = self._descriptions.last(app_id)
        # Only a query shows that a pending job has started.
        is_pending = last is not None and last.state == AppState.PENDING
        return self.has_ended(app_id, MAX_AGE_SECONDS if outcome or is_pending else _QUEUE_SECONDS)
