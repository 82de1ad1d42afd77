"""Rules for failed pods of a Job (``podFailurePolicy``): ignore, count, or fail the Job."""

from __future__ import annotations

import copy
from typing import Any

#: Recreate a pod after a preemption, an eviction or the loss of its node; this is not a retry.
IGNORE_DISRUPTIONS: dict[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
#: Fail the Job when a container fails. The Job's condition keeps the exit code even after the pods
#: are deleted.
FAIL_JOB: dict[str, Any] = {
    "action": "FailJob",
    "onExitCodes": {"operator": "NotIn", "values": [0]},
}


def pod_failure_policy(*rules: dict[str, Any]) -> dict[str, Any]:
    """Return a ``podFailurePolicy`` with these rules; the first matching rule applies."""
    return {"rules": copy.deepcopy(list(rules))}
