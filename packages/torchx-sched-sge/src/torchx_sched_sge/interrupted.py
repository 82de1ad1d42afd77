"""Complete or undo submissions whose process was killed.

The entry in the index has the submitting process (:mod:`torchx_kit.jobs.submitter`). Grid Engine
holds the jobs of an incomplete submission, so nothing has started if a job is missing.
"""

from __future__ import annotations

import logging

from torchx_sched_sge.client import Sge
from torchx_sched_sge.records import Entry, Index
from torchx_sched_sge.submit import add_missing_jobs, delete

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
    if not entry.is_abandoned():
        return entry
    # The submission may have ended since the entry was read.
    entry = index.get(entry.app_id) or entry
    if not entry.is_abandoned():
        return entry
    add_missing_jobs(sge, entry)
    has_started = entry.has_report(sge.host)
    handle = f"sge://torchx/{entry.app_id}"
    if has_started or all(role.job for role in entry.roles):
        if not has_started:
            sge.run_idempotent("qrls", *entry.jobs)
        entry.complete = True
        logger.warning("the submission of %s was interrupted, and is complete now", handle)
    else:
        delete(sge, entry.jobs)
        entry.cancelled, entry.interrupted = True, not entry.jobs
        logger.warning("the submission of %s was interrupted, so it is cancelled", handle)
    index.put(entry)
    return entry
