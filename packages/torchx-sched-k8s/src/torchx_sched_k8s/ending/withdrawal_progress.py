"""The progress of a pod's withdrawal, stored in an annotation of the pod's Job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_sched_k8s.cluster.labels import ANNOTATION_WITHDRAWAL, annotations_of

#: The fields of a Job's spec that a withdrawal changes, with their values during the withdrawal.
#: Without ttlSecondsAfterFinished, the cluster keeps the failed Job until the withdrawal reads it.
CHANGED_FIELDS: dict[str, Any] = {"backoffLimit": 0, "ttlSecondsAfterFinished": None}


@dataclass(frozen=True)
class Progress:
    """The state of a withdrawal, stored in an annotation of the Job.

    Attributes:
        pod: Unique id of the pod to delete.
        spec: The old values of the Job's changed fields.
        deleted: Whether the pod was deleted before it had a node.
    """

    pod: str
    spec: dict[str, Any]
    deleted: bool = False


def progress_of(job: Mapping[str, Any]) -> Progress | None:
    """Return the state of a Job's withdrawal; None if the annotation is missing or invalid."""
    try:
        found = json.loads(annotations_of(job).get(ANNOTATION_WITHDRAWAL) or "null")
        spec = {key: found["spec"][key] for key in CHANGED_FIELDS if key in found["spec"]}
        return Progress(str(found["pod"]), spec, bool(found["deleted"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # no withdrawal, or somebody changed the annotation
