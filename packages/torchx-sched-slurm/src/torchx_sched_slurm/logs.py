"""The log files of replicas."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.jobs.logs import MAX_AGE_SECONDS, FileLogs, ReplicaLog
from torchx_sched_slurm.job_files.job_dirs import job_dirs
from torchx_sched_slurm.job_files.records import SlurmRecord
from torchx_sched_slurm.jobs import parse_job_id, selector
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
        description = self.described(app_id)
        entry = self.scheduler._entry(app_id)
        if entry is not None and entry.roles:
            record, found = SlurmRecord(host, entry.record), super().find(app_id, role, k)
            return replace(
                found,
                is_finished=lambda: self._is_finished(app_id, record),
                watch=[*found.watch, posixpath.join(record.path, "outcome")],
                missing_hint=lambda: record.batch_log_hint(selector(entry.app_id)),
            )
        app_id = parse_job_id(app_id) or app_id
        folder = job_dirs().get(app_id.replace("@", ";"))
        if description is None and folder is None:
            raise BackendError(f"job {app_id} does not exist")
        name = f"slurm-{selector(app_id)}-{role.replace('/', '_')}-{k}"
        return ReplicaLog(
            host,
            posixpath.join(folder or host.resolve(), name),
            is_running=description is not None and not is_terminal(description.state),
            is_finished=lambda: self.has_ended(app_id),
        )

    def _is_finished(self, app_id: str, record: SlurmRecord) -> bool:
        """Return whether a job has ended.

        Every call reads the job's record; the queue is queried at most every few seconds.
        """
        outcome = SlurmRecord(record.host, record.path).outcome
        last = self._descriptions.last(app_id)
        # Only a query shows that a pending job has started.
        is_pending = last is not None and last.state == AppState.PENDING
        return self.has_ended(app_id, MAX_AGE_SECONDS if outcome or is_pending else _QUEUE_SECONDS)
