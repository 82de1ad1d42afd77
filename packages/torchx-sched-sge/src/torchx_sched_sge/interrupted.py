"""Complete or undo submissions whose process was killed.

While a process submits an app, the index knows this (:meth:`.Index.submitting`).
Grid Engine holds the jobs of an incomplete submission, so nothing has started if a job is missing.
"""

from __future__ import annotations

import logging
import time

from torchx_sched_sge.client import Sge
from torchx_sched_sge.records import Entry, Index, has_report
from torchx_sched_sge.submit import add_missing_jobs, delete

# How long to wait before a submission counts as interrupted, in seconds: a qsub that the killed
# process has started may still submit a job.
_GRACE_SECONDS = 15.0

logger = logging.getLogger(__name__)


def finish_submission(sge: Sge, index: Index, entry: Entry) -> Entry:
    """Complete or undo a submission whose process was killed, and return the app's new entry.

    If all jobs were submitted, release them. Otherwise delete them, and record the app as
    cancelled. An entry whose submission has ended or may still continue is returned unchanged.

    Args:
        sge: The client.
        index: The index.
        entry: The app's index entry.

    Raises:
        SgeError: Grid Engine refuses a request, or cannot be reached.
    """
    if _has_ended(entry) or time.time() - entry.submitted < _GRACE_SECONDS:
        return entry
    if index.is_submitting(entry.app_id):
        return entry
    # The submission may have ended since the entry was read.
    entry = index.get(entry.app_id) or entry
    if _has_ended(entry):
        return entry
    add_missing_jobs(sge, entry)
    has_started = has_report(sge.host, entry)
    handle = f"sge://torchx/{entry.app_id}"
    if has_started or all(role.job for role in entry.roles):
        if not has_started:
            sge.run_idempotent("qrls", *entry.jobs)
        entry.complete = True
        logger.warning("the submission of %s was interrupted, and is complete now", handle)
    else:
        delete(sge, entry.jobs)
        entry.cancelled = True
        logger.warning("the submission of %s was interrupted, so it is cancelled", handle)
    index.put(entry)
    return entry


def _has_ended(entry: Entry) -> bool:
    return entry.complete or entry.cancelled or entry.deleted or entry.final is not None
