"""Which failures of pods count against the retries of a Job (``podFailurePolicy``)."""

from __future__ import annotations

import copy
from typing import Any

#: Preemption, eviction and the loss of a node do not count: the pod is created again.
IGNORE_DISRUPTIONS: dict[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
#: Any other failure fails the Job, whose condition then keeps the reason when the pods are deleted.
FAIL_JOB: dict[str, Any] = {
    "action": "FailJob",
    "onExitCodes": {"operator": "NotIn", "values": [0]},
}


def pod_failure_policy(*rules: dict[str, Any]) -> dict[str, Any]:
    """Return a ``podFailurePolicy`` with these rules, the first of which that matches applies."""
    return {"rules": copy.deepcopy(list(rules))}
