"""Rules for failed pods of a Job (``podFailurePolicy``).

A rule can match a pod's condition only by its type and status
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy). The condition
``DisruptionTarget`` marks preemption, drain, a lost node, and eviction when a node lacks memory
(https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions). The
condition does not mark a container that exceeded its own memory limit, or a pod that exceeded its
own limit of ephemeral storage. These failures use up retries.
"""

from __future__ import annotations

import copy
from typing import Any

#: Recreate a pod after a preemption, an eviction or the loss of its node; this is not a retry.
IGNORE_DISRUPTIONS: dict[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
#: Fail the Job after a disruption of one of its pods, so that a JobSet or the supervisor restarts
#: all Jobs of the app.
FAIL_ON_DISRUPTION: dict[str, Any] = {**IGNORE_DISRUPTIONS, "action": "FailJob"}
#: Fail the Job when a container fails. The Job's condition keeps the exit code even after the pods
#: are deleted.
FAIL_JOB: dict[str, Any] = {
    "action": "FailJob",
    "onExitCodes": {"operator": "NotIn", "values": [0]},
}


def pod_failure_policy(*rules: dict[str, Any]) -> dict[str, Any]:
    """Return a ``podFailurePolicy`` with these rules; the first matching rule applies."""
    return {"rules": copy.deepcopy(list(rules))}
