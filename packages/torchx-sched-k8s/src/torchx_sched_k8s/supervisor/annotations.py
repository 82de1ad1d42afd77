"""Labels and annotations that the supervisor and the rest of its app share.

``program.py`` repeats the annotations: it runs without this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.cluster.labels import ANNOTATION_ENDED as ANNOTATION_ENDED
from torchx_sched_k8s.cluster.labels import annotations_of, labels_of

#: Which part of an app an object is, where the app has a supervisor.
LABEL_PART = "torchx.pytorch.org/part"
PART_SUPERVISOR = "supervisor"
PART_REPLICA = "replica"

#: How many times the app had been restarted when the object was created.
ANNOTATION_RESTARTS = "torchx.pytorch.org/restarts"
#: How many times the app may be restarted because this role failed.
ANNOTATION_MAX_RESTARTS = "torchx.pytorch.org/max-restarts"
#: Why the app was restarted last.
ANNOTATION_RESTART_REASON = "torchx.pytorch.org/restart-reason"
#: What keeps the supervisor from its work.
ANNOTATION_TROUBLE = "torchx.pytorch.org/trouble"
#: How many roles the app has.
ANNOTATION_ROLES = "torchx.pytorch.org/roles"
#: The key of the supervisor's config map with the manifests of the roles' Jobs.
MANIFESTS = "jobs.json"


def is_supervisor(resource: Mapping[str, Any]) -> bool:
    """Return whether an object belongs to an app's supervisor."""
    return labels_of(resource).get(LABEL_PART) == PART_SUPERVISOR


def number_of(resource: Mapping[str, Any] | None, annotation: str) -> int:
    """Return an annotation as a number; 0 if it is missing or no number."""
    text = annotations_of(resource or {}).get(annotation) or ""
    return int(text) if text.isdigit() else 0
