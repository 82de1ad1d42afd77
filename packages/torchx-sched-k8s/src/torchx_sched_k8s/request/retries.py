"""Which replicas start again after a failure, in the words of each API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.failure_policy import (
    FAIL_JOB,
    IGNORE_DISRUPTIONS,
    pod_failure_policy,
)
from torchx_sched_k8s.supervisor import is_supervised
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


def policy_of(role: Role, opts: KubernetesOpts) -> RetryPolicy:
    """Returns what starts again when a replica of the role fails."""
    return RetryPolicy(opts.retry_policy) if opts.retry_policy else role.retry_policy


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
    rules = [IGNORE_DISRUPTIONS]
    if together and policy == RetryPolicy.APPLICATION and opts.api == "batch":
        rules.append(FAIL_JOB)
    fields["podFailurePolicy"] = pod_failure_policy(*rules)
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
