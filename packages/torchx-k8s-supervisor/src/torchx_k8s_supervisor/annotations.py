"""Annotations of a supervisor and of the Jobs that it restarts.

``program.py`` repeats the annotations' names, because it runs without this package. Change both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.cluster.labels import annotations_of

#: How many times the app has been restarted; on a role's Job and its pods, how many times it had
#: been restarted when the Job was created.
ANNOTATION_RESTARTS = "torchx.pytorch.org/restarts"
#: Number of the app's restarts after a disruption. Such a restart is not a retry.
ANNOTATION_DISRUPTIONS = "torchx.pytorch.org/disruptions"
#: How many times failures of a role may restart the app; on the role's Job.
ANNOTATION_MAX_RESTARTS = "torchx.pytorch.org/max-restarts"
#: Reason of the app's last restart.
ANNOTATION_RESTART_REASON = "torchx.pytorch.org/restart-reason"
#: The rules of the attempts of an app with the option ``requeue``, as JSON.
ANNOTATION_REQUEUE = "torchx.pytorch.org/requeue"
#: The attempts of such an app, as JSON; ``program.py`` describes the form.
ANNOTATION_ATTEMPTS = "torchx.pytorch.org/attempts"
#: The error that prevents the supervisor from restarting or ending the app.
ANNOTATION_TROUBLE = "torchx.pytorch.org/trouble"
#: Number of the app's roles. Only the Job of a supervisor that restarts the app has it.
ANNOTATION_ROLES = "torchx.pytorch.org/roles"


def number_of(resource: Mapping[str, Any] | None, annotation: str) -> int:
    """Return an annotation's value as a number; 0 if it is missing or is not a number."""
    text = annotations_of(resource or {}).get(annotation) or ""
    return int(text) if text.isdigit() else 0
