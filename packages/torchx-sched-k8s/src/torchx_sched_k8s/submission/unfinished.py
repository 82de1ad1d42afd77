"""The record of an unfinished submission, in the metadata of the first Job that it creates.

An app of plain Jobs consists of several objects. The Job that is created first has a label and an
annotation until all objects exist and all Jobs were started. If the client is killed before that,
status shows the unfinished submission, and the next submission of an app with this name on the same
machine removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_kit.jobs.submitter import has_ended, this_process
from torchx_sched_k8s.cluster.labels import annotations_of, labels_of

#: Marks the first Job of an unfinished submission.
LABEL_UNFINISHED = "torchx.pytorch.org/unfinished"
#: JSON with the submitting process (machine, pid, start time) and the names of the app's Jobs.
ANNOTATION_SUBMISSION = "torchx.pytorch.org/submission"


def record(jobs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the labels and annotations that mark the first Job of a submission.

    Args:
        jobs: All Jobs of the app.
    """
    submission = {**this_process(), "jobs": [str(job["metadata"]["name"]) for job in jobs]}
    return {
        "labels": {LABEL_UNFINISHED: "true"},
        "annotations": {ANNOTATION_SUBMISSION: json.dumps(submission)},
    }


def removal() -> dict[str, Any]:
    """Return the merge patch that removes the mark from the first Job's metadata."""
    return {
        "labels": {LABEL_UNFINISHED: None},
        "annotations": {ANNOTATION_SUBMISSION: None},
    }


def unfinished_message(jobs: Iterable[Mapping[str, Any]]) -> str:
    """Return the status message of an unfinished submission; empty if the submission is finished.

    Args:
        jobs: The existing Jobs of the app.
    """
    jobs = list(jobs)
    first = next((job for job in jobs if LABEL_UNFINISHED in labels_of(job)), None)
    if first is None:
        return ""
    submission = _read(first)
    names = submission.get("jobs") or []
    existing = {str(job["metadata"]["name"]) for job in jobs}
    count = sum(name in existing for name in names)
    machine = str(submission.get("machine") or "").partition(" ")[0] or "an unknown machine"
    return (
        f"its submission is not finished ({count} of {len(names)} Jobs exist); if process"
        f" {submission.get('pid')} on {machine} has ended, submit the app again or delete it"
    )


def is_abandoned(job: Mapping[str, Any]) -> bool:
    """Return whether the process that created the first Job of a submission has ended.

    The result is False for a process of another machine or container, which may still run, and for
    a Job without the record of a submission.
    """
    return has_ended(_read(job)) is True


def _read(job: Mapping[str, Any]) -> dict[str, Any]:
    try:
        submission = json.loads(annotations_of(job).get(ANNOTATION_SUBMISSION) or "{}")
    except ValueError:
        return {}  # another program changed the annotation
    return submission if isinstance(submission, dict) else {}
