"""Explains the reasons that schedulers give for pending apps, and suggests remedies.

The texts come from documentation and sources: the scheduling and pod events of Kubernetes, Kueue
and Volcano. A scheduler that explains its reasons itself, by
:mod:`torchx_kit.jobs.pending_reasons`, has no rows here.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Explanation(NamedTuple):
    """The meaning of a scheduler's reason.

    Attributes:
        meaning: The reason in plain words.
        remedy: What the user can do.
        is_explained: Whether the scheduler's text already contains the meaning, as in "Priority:
            other jobs".
    """

    meaning: str
    remedy: str
    is_explained: bool = False


# Matches an explanation after the code of a reason: it begins with a lower-case letter.
_CONTINUES = re.compile(r": [a-z]")

_SMALLER = "wait; fewer or smaller replicas start earlier"

# Patterns with their explanations. The first pattern that matches the scheduler's text applies.
_EXPLANATIONS: tuple[tuple[str, str, str], ...] = (
    (
        r"ImagePullBackOff|ErrImagePull|InvalidImageName|ErrImageNeverPull|ImageInspectError",
        "the image cannot be pulled",
        "check its name and the right to pull it",
    ),
    (
        r"(Local|Cluster)Queue \S+ (doesn't exist|not found)",
        "the queue does not exist, or leads to a queue that does not exist",
        "check the option queue; 'kubectl get localqueues' lists the queues of the namespace",
    ),
    (
        r"(Local|Cluster)Queue \S+ is inactive",
        "the queue takes no jobs now",
        "use another queue, or ask the administrators",
    ),
    (
        r"namespace doesn't match ClusterQueue selector",
        "the queue takes no jobs of this namespace",
        "use another queue or namespace, or ask the administrators",
    ),
    (
        r"resource \S+ unavailable in ClusterQueue",
        "the queue has no quota for one of the requested resources",
        "request without this resource, use another queue, or ask the administrators",
    ),
    (
        r"Pending the preemption of",
        "the queue ends other jobs to make room for the app",
        "wait",
    ),
    (
        # Kueue separates pod sets by "; ". A pod set with "insufficient unused quota" may fit into
        # a flavor later, so the pattern does not match it.
        (
            r"(?:^|;)(?:(?!insufficient unused quota)[^;])*?"
            r"(?:insufficient quota for|> maximum capacity)"
            r"(?:(?!insufficient unused quota)[^;])*(?:;|$)"
        ),
        "the app requests more than the quota of the queue can ever give",
        "request less, or use another queue",
    ),
    (
        (r"exceeded quota|insufficient unused quota|queue resource quota insufficient"),
        "the quota of the namespace or queue is used up",
        "wait for other jobs, or request less",
    ),
    (
        r"Insufficient [\w./-]+|Too many pods|NotEnoughResources",
        "no node has enough free resources",
        "wait, or request less",
    ),
    (
        r"pod group is not ready|resource in cluster is overused",
        "the cluster has no room for all replicas at once",
        _SMALLER,
    ),
    (
        r"untolerated taint|didn't match Pod's node affinity|node selector|anti-affinity rules",
        "no node accepts the pod",
        "change the node selector or the tolerations",
    ),
    (
        r"were unschedulable",
        "the nodes are closed for new pods",
        "wait, or ask the administrators",
    ),
    (
        (
            r"persistentvolumeclaim|PersistentVolumeClaim|FailedMount|FailedAttachVolume"
            r"|volume node affinity conflict"
        ),
        "a volume is missing or cannot be attached",
        "check the names of the mounts",
    ),
    (
        r"CreateContainerConfigError|secret \S+ not found|configmap \S+ not found",
        "a secret or config map of the pod is missing",
        "check the names of the secrets",
    ),
    (
        r"serviceaccount \S+ not found",
        "the service account does not exist in the namespace",
        "check the option service_account",
    ),
    (
        r"violates PodSecurity",
        "a policy of the namespace forbids the pod",
        "remove privileged settings, or use another namespace",
    ),
    (
        r"SchedulingGated",
        "another controller has not released the pod yet",
        "wait, or look at the pod's scheduling gates",
    ),
)


def explain(reason: str) -> Explanation | None:
    """Return the explanation of a reason, or None if the reason is not known.

    >>> explain("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.").remedy
    'wait, or request less'

    Args:
        reason: The scheduler's text.
    """
    for pattern, meaning, remedy in _EXPLANATIONS:
        found = re.search(pattern, reason[:2000])
        if found:
            is_code = " " not in found[0]
            is_explained = is_code and bool(_CONTINUES.match(reason, found.end()))
            return Explanation(meaning, remedy, is_explained)
    return None
