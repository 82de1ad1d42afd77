"""Why apps wait, in plain words, by the texts of Kubernetes, Kueue and Volcano.

The patterns come from documentation and sources.
"""

from __future__ import annotations

from torchx_kit.jobs.pending_reasons import SMALLER

#: Patterns with the meaning and the remedy of each; the first that matches a text applies.
PENDING: tuple[tuple[str, str, str], ...] = (
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
        SMALLER,
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
