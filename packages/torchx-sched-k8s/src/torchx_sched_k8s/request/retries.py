"""Convert retry policies to the fields of each API."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torchx_sched_k8s.options import KubernetesOpts
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENDS_APP_KEY

# A rule of a pod failure policy can match a pod's condition only by its type and status
# (https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy). The condition
# DisruptionTarget marks preemption, drain, a lost node, and eviction when a node lacks memory
# (https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions). The
# condition does not mark a container that exceeded its own memory limit, or a pod that exceeded its
# own limit of ephemeral storage. These failures use up retries.

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


#: Maps the retry policy of a role to the policies of the role's Volcano tasks. The action
#: ``RestartPod`` exists since Volcano 1.11 (its release notes: fine-grained fault recovery).
RETRY_POLICIES: dict[str, list[dict[str, str]]] = {
    policy: [{"event": event, "action": action} for event in ("PodEvicted", "PodFailed")]
    for policy, action in (
        (RetryPolicy.REPLICA, "RestartPod"),
        (RetryPolicy.APPLICATION, "RestartJob"),
        (RetryPolicy.ROLE, "RestartTask"),
    )
}


def volcano_policies(app: AppDef, role: Role, opts: KubernetesOpts) -> list[dict[str, str]]:
    """Return the policies of a role's Volcano task.

    Volcano counts restarts exactly only if it restarts the whole Job. The action is therefore
    ``RestartJob`` if the role or replica to restart is the whole app.
    """
    policy = policy_of(role, opts)
    if len(app.roles) == 1 and (role.num_replicas == 1 or policy == RetryPolicy.ROLE):
        policy = RetryPolicy.APPLICATION
    return [dict(one) for one in RETRY_POLICIES[policy]]


def volcano_max_retry(app: AppDef) -> int:
    """Return the field ``maxRetry`` of a Volcano Job: the number of restarts plus one.

    The number of restarts is the smallest ``max_retries`` of the roles that have retries.
    Volcano adds 1 to ``retryCount`` after each failure, and fails the Job when ``retryCount``
    equals ``maxRetry`` (``pkg/controllers/job/state/restarting.go``). For an app without retries,
    the result is 0, which Volcano replaces by its default 3. This has no effect, because the app
    has no restart policy.
    """
    restarts = [role.max_retries for role in app.roles if role.max_retries > 0]
    return min(restarts) + 1 if restarts else 0


def deciding_roles(app: AppDef) -> list[Role]:
    """Return the roles whose success ends the app."""
    return [role for role in app.roles if role.metadata.get(ENDS_APP_KEY)]


def policy_of(role: Role, opts: KubernetesOpts) -> RetryPolicy:
    """Return the option ``retry_policy``, or the role's own policy if the option is not set.

    With the option ``requeue``, all replicas start again together.
    """
    if opts.has_attempts:
        return RetryPolicy.APPLICATION
    return RetryPolicy(opts.retry_policy) if opts.retry_policy else role.retry_policy


def job_retries(
    role: Role, opts: KubernetesOpts, *, together: bool, gang: bool = False
) -> dict[str, Any]:
    """Return the fields of a Job's spec that control its retries.

    Args:
        role: The Job's role.
        opts: The scheduler's options.
        together: Whether a supervisor or a JobSet restarts the Job as a whole.
        gang: Whether a disruption of one pod must fail the Job, because a supervisor or a JobSet
            restarts all pods.
    """
    least = role.num_replicas if role.min_replicas is None else role.min_replicas
    elastic = 0 < least < role.num_replicas and not opts.has_attempts
    fields: dict[str, Any] = {}
    policy = policy_of(role, opts)
    # without retries too, a limit for each index lets the others run on after one has failed
    survives = elastic and role.max_retries < 1
    if survives or (role.max_retries > 0 and policy == RetryPolicy.REPLICA):
        fields["backoffLimitPerIndex"] = role.max_retries
        fields["maxFailedIndexes"] = role.num_replicas - least if elastic else 0
    else:
        fields["backoffLimit"] = 0 if together else role.max_retries
    rules = [FAIL_ON_DISRUPTION if gang else IGNORE_DISRUPTIONS]
    if together and policy == RetryPolicy.APPLICATION and opts.api == "batch" and not survives:
        rules.append(FAIL_JOB)
    fields["podFailurePolicy"] = pod_failure_policy(*rules)
    return fields


def is_gang(app: AppDef, role: Role, opts: KubernetesOpts) -> bool:
    """Return whether a disruption of one pod of a role restarts the whole JobSet.

    A pod is replaced alone if its role has the policy ``REPLICA``, or if the app has one replica.
    """
    several = sum(one.num_replicas for one in app.roles) > 1
    return several and policy_of(role, opts) != RetryPolicy.REPLICA


def jobset_retries(
    app: AppDef, opts: KubernetesOpts, names: dict[str, str], disrupted: Sequence[str]
) -> dict[str, Any]:
    """Return the field ``failurePolicy`` of a JobSet; empty if nothing restarts the JobSet.

    JobSet applies the first rule that matches a failed Job. If no rule matches, JobSet restarts at
    most ``maxRestarts`` times. Rules need JobSet 0.6 or later (KEP-262, "Configurable Failure
    Policy"; https://jobset.sigs.k8s.io/docs/tasks/failure_policy/).

    Args:
        app: The app.
        opts: The scheduler's options.
        names: Maps each role's name to the name of the role's replicated Job.
        disrupted: Names of the replicated Jobs whose pod failure policy fails them only after a
            disruption.
    """
    together = {
        role.name: role.max_retries
        for role in app.roles
        if policy_of(role, opts) != RetryPolicy.REPLICA
    }
    most = max(together.values(), default=0)
    rules: list[dict[str, Any]] = []
    if disrupted:
        rules.append(
            {
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "targetReplicatedJobs": list(disrupted),
            }
        )
    never = [names[role.name] for role in app.roles if not together.get(role.name)]
    if most > 0 and never:
        rules.append({"action": "FailJobSet", "targetReplicatedJobs": never})
    if most < 1 and not rules:
        return {}
    policy: dict[str, Any] = {"maxRestarts": most}
    if rules:
        policy["rules"] = rules
    return policy
