"""Which replicas start again after a failure, in the words of each API."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from torchx_sched_k8s.options import KubernetesOpts
from torchx_specs.model.app import AppDef, RetryPolicy, Role

#: Volcano's words for what to do.
RETRY_POLICIES: dict[str, list[dict[str, str]]] = {
    RetryPolicy.REPLICA: [],
    RetryPolicy.APPLICATION: [
        {"event": "PodEvicted", "action": "RestartJob"},
        {"event": "PodFailed", "action": "RestartJob"},
    ],
    RetryPolicy.ROLE: [
        {"event": "PodEvicted", "action": "RestartTask"},
        {"event": "PodFailed", "action": "RestartTask"},
    ],
}

#: Preemption, eviction and a node that goes away are nobody's failures: the pod is made anew.
_DISRUPTION: dict[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
#: Any other failure is the Job's, which then says whose it was: its pods will be gone.
_FAILURE: dict[str, Any] = {
    "action": "FailJob",
    "onExitCodes": {"operator": "NotIn", "values": [0]},
}


def disruptions_are_no_failures() -> dict[str, Any]:
    """Returns ``podFailurePolicy`` of a Job whose pods may be evicted."""
    return {"rules": [copy.deepcopy(_DISRUPTION)]}


def policy_of(role: Role, opts: KubernetesOpts) -> RetryPolicy:
    """Returns what starts again when a replica of the role fails."""
    return RetryPolicy(opts.retry_policy) if opts.retry_policy else role.retry_policy


def is_supervised(app: AppDef, opts: KubernetesOpts) -> bool:
    """Returns True if a supervisor starts the plain Jobs of an app again together, or ends them.

    That is done where it was asked for by option, and a Job by itself does not do it.
    """
    if opts.api != "batch" or opts.retry_policy != RetryPolicy.APPLICATION:
        return False
    retried = any(role.max_retries > 0 and role.num_replicas > 1 for role in app.roles)
    return retried or len(app.roles) > 1


def problems_of_retries(app: AppDef, opts: KubernetesOpts, api: str) -> Iterable[str]:
    """Yields which retries the API cannot do, one line each."""
    for role in app.roles:
        policy = policy_of(role, opts)
        if role.max_retries < 1 or policy != RetryPolicy.ROLE:
            continue
        here = f"role '{role.name}': RetryPolicy.{policy.value} starts"
        one = "-cfg retry_policy=REPLICA starts the failed replica alone again (as torchrun needs)"
        if role.num_replicas > 1 and api == "batch":
            yield (
                f"{here} its {role.num_replicas} replicas again together, which the Jobs of a plain"
                " cluster cannot do: job_api=volcano can, -cfg retry_policy=APPLICATION starts the"
                f" whole app; {one}"
            )
        if len(app.roles) > 1 and api == "jobset":
            yield (
                f"{here} one role of {len(app.roles)} again, which a JobSet cannot do:"
                f" job_api=volcano can, -cfg retry_policy=APPLICATION starts all of them; {one}"
            )


def warnings_of_retries(app: AppDef, opts: KubernetesOpts, api: str) -> Iterable[str]:
    """Yields which retries are not quite what roles say, one line each.

    As APPLICATION is what a role says if nobody chose, plain Jobs take it for what they do by
    themselves, and a supervisor is made only where the option asks for one.
    """
    if is_supervised(app, opts):
        return
    for role in app.roles:
        policy = policy_of(role, opts)
        if role.max_retries > 0 and policy == RetryPolicy.APPLICATION and _is_apart(app, api):
            yield (
                f"role {role.name}: with plain Jobs a retry starts the failed replica alone again"
                " (as torchrun needs); -cfg retry_policy=APPLICATION starts all of the app, and"
                " so do job_api=jobset and volcano"
            )


def _is_apart(app: AppDef, api: str) -> bool:
    return api == "batch" and sum(role.num_replicas for role in app.roles) > 1


def job_retries(role: Role, opts: KubernetesOpts, *, together: bool) -> dict[str, Any]:
    """Returns the fields of a Job that say how often its pods start again.

    Args:
        role: the Job's role
        opts: the scheduler's options
        together: the API around the Job starts it again as a whole
    """
    least = role.num_replicas if role.min_replicas is None else role.min_replicas
    elastic = 0 < least < role.num_replicas
    fields: dict[str, Any] = {}
    policy = policy_of(role, opts)
    if role.max_retries > 0 and policy == RetryPolicy.REPLICA:
        fields["backoffLimitPerIndex"] = role.max_retries
        fields["maxFailedIndexes"] = role.num_replicas - least if elastic else 0
    else:
        fields["backoffLimit"] = 0 if together else role.max_retries
    rules = [_DISRUPTION]
    if together and policy_of(role, opts) == RetryPolicy.APPLICATION and opts.api == "batch":
        rules.append(_FAILURE)
    fields["podFailurePolicy"] = {"rules": copy.deepcopy(rules)}
    if elastic:
        # replicas that never found a place need not run once the others have done the work
        fields["successPolicy"] = {"rules": [{"succeededCount": least}]}
    return fields


def jobset_retries(app: AppDef, opts: KubernetesOpts, names: dict[str, str]) -> dict[str, Any]:
    """Returns ``failurePolicy`` of a JobSet, empty for no retries."""
    together = {
        role.name: role.max_retries
        for role in app.roles
        if policy_of(role, opts) != RetryPolicy.REPLICA
    }
    most = max(together.values(), default=0)
    if most < 1:
        return {}
    never = [names[role.name] for role in app.roles if not together.get(role.name)]
    policy: dict[str, Any] = {"maxRestarts": most}
    if never:
        policy["rules"] = [{"action": "FailJobSet", "targetReplicatedJobs": never}]
    return policy
