"""Withdraw an app that waits for its start: in Kueue's queue, or for a node with room.

A suspended Job that was never resumed has no pods. One patch sets ``parallelism`` of such a Job to
0. The patch contains the resource version of the Job that was read, so the API server refuses the
patch if Kueue has admitted the Job in the meantime. If Kueue admits the Job after the patch, the
Job controller creates no pod.

:class:`PodWithdrawal` withdraws a Job whose only pod waits for a node. Every other Job that is not
suspended stays as it is. Its steps, and the behaviour of Kubernetes that each step relies on:

1. Patch the Job: ``backoffLimit`` becomes 0, and an annotation records the pod's uid and the old
   values. The patch contains the Job's resource version. A Job of which more than ``backoffLimit``
   pods have failed is failed for good, and creates no more pods ("Pod backoff failure policy" and
   "Job termination and cleanup" in [1]).
2. Delete the pod, with its uid and its resource version as preconditions. The API server answers
   409 and deletes nothing if the pod has changed since it was read, for example because the
   scheduler has bound it to a node ([2]). The API server refuses to bind a pod that is being
   deleted ([3]). A refused deletion is repeated if the pod still has no node; otherwise the Job
   gets its old values back.
3. Record in the annotation that the pod was deleted before it had a node. Its containers never
   start.
4. Wait until the Job has failed. The Jobs of TorchX have a ``podFailurePolicy``, so a deleted pod
   counts as failed only when its phase is ``Failed`` ("Pod replacement policy" in [1]). Every 20
   seconds, the garbage collector of pods sets this phase for deleted pods without a node. It adds
   the condition ``DisruptionTarget`` only to pods whose node is lost ([4]). So the rule that
   ignores disruptions does not match, the failure counts, and the Job fails with
   ``BackoffLimitExceeded``.
5. Check that the failed Job had only this pod. The Job controller removes the finalizer of a pod
   only when the Job's status counts the pod ("Job tracking with finalizers" in [1]). So a second
   pod still exists, or ``status.failed`` is 2. The Job then gets its old values back.

The Job must be in its first attempt, but a disrupted pod is replaced without being counted. The
Job controller creates a replacement 10 seconds or more after the failure ("Pod backoff failure
policy" in [1]), so a pod that was created shortly after the Job's start is the Job's first pod.

References:
    [1] https://kubernetes.io/docs/concepts/workloads/controllers/job/
    [2] https://kubernetes.io/docs/reference/kubernetes-api/definitions/preconditions-v1-meta/
    [3] ``BindingREST`` in pkg/registry/core/pod/storage/storage.go of Kubernetes
    [4] https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection,
        and ``gcUnscheduledTerminating`` in pkg/controller/podgc/gc_controller.go of Kubernetes
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from torchx_kit.times import datetime_of
from torchx_sched_k8s.arrays.request import ANNOTATION_NAMES
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    ANNOTATION_WITHDRAWAL,
    ANNOTATION_WITHDRAWN,
    MIN_PARALLELISM,
    annotations_of,
)
from torchx_sched_k8s.cluster.paths import BATCH, CORE, object_path
from torchx_sched_k8s.status.job_states import (
    CHANGED_FIELDS,
    Progress,
    progress_of,
    time_stamp,
    true_conditions,
)
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.views import AppView

# How long to wait until a new Job has its pod and the scheduler has looked for a node, in seconds.
_SETTLE_SECONDS = 10.0
# A pod that was created within this time after its Job's start is the Job's first pod. It is half
# of the Job controller's shortest back-off delay, because `status.startTime` and
# `creationTimestamp` come from the clocks of different servers.
FIRST_POD_SECONDS = 5.0
# `metadata.generation` of a Job that was created suspended and resumed once.
_RESUMED_ONCE = 2
# Status codes of requests that the cluster never permits: a right is missing, or a webhook refuses.
_DENIED = (403, 422)
_JOB_CONTROLLER = "kubernetes.io/job-controller"


class PodWithdrawal:
    """The withdrawal of a Job of one pod while the pod waits for a node with room.

    :meth:`advance` carries out one step.

    Args:
        cluster: The cluster.
        namespace: Namespace of the Job.
        path: API path of the Job.
        action: The action in error messages, as in "cannot <action>".
    """

    def __init__(self, cluster: Cluster, namespace: str, path: str, action: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._path = path
        self._action = action
        self._settled = cluster.clock() + _SETTLE_SECONDS
        # Unique ids of the pods whose deletion the API server has accepted.
        self._accepted: set[str] = set()

    def advance(self, job: Mapping[str, Any]) -> bool | None:
        """Carry out the next step.

        Args:
            job: The Job, as the cluster stores it now.

        Returns:
            True if the Job's program never starts, False if it may have started or cannot be
            withdrawn, None if the next step follows.

        Raises:
            ApiError: With status 409 if the Job or the pod has changed in the meantime. The caller
                reads the Job again and continues.
            BackendError: The cluster does not answer.
        """
        progress = progress_of(job)
        if progress is None and not may_begin(job):
            return False
        pods = self._pods(job)
        if any(map(has_node, pods)):
            return self._give_up(job, progress)
        if progress is None:
            return self._begin(job, pods)
        waiting = [pod for pod in pods if is_waiting(pod)]
        known = next((pod for pod in pods if _uid(pod) == progress.pod), None)
        if not progress.deleted:
            if known in waiting:
                return self._delete(job, progress, known)
            if known is None and progress.pod not in self._accepted:
                return self._give_up(job, progress)  # the pod may have had a node
            self._record(job, replace(progress, deleted=True))
            return None
        finished = {"Complete", "Failed"} & true_conditions(job).keys()
        if waiting or "Complete" in finished or _failures(job) > 1:
            # The Job has replaced the pod. An earlier replacement may have had a node.
            return self._give_up(job, progress)
        return self._complete(job, progress) if finished else None

    def _pods(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        labels = job["spec"]["selector"]["matchLabels"]
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        path = object_path(CORE, self._namespace, "pods")
        return list(self._cluster.list_items(path, self._action, query))

    def _begin(self, job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> bool | None:
        """Carry out the first step if the Job's only pod is its first one and waits for a node."""
        if len(pods) > 1:
            return False
        if not pods or not (job.get("status") or {}).get("startTime"):
            return None if self._cluster.clock() < self._settled else False
        [pod] = pods
        if not is_waiting(pod) or not is_first(job, pod):
            return False
        if not _was_tried(pod) and self._cluster.clock() < self._settled:
            return None  # the scheduler may have a node for the pod
        old = {key: job["spec"][key] for key in CHANGED_FIELDS if job["spec"].get(key) is not None}
        changes = {key: CHANGED_FIELDS[key] for key in old}
        try:
            self._record(job, Progress(_uid(pod), old), changes)
        except ApiError as e:
            if e.status not in _DENIED:
                raise
            _warn(e)
            return False
        return None

    def _delete(
        self, job: Mapping[str, Any], progress: Progress, pod: Mapping[str, Any]
    ) -> bool | None:
        metadata = pod["metadata"]
        path = object_path(CORE, self._namespace, "pods", str(metadata["name"]))
        preconditions = {key: str(metadata[key]) for key in ("uid", "resourceVersion")}
        try:
            if not self._cluster.delete(path, self._action, preconditions=preconditions):
                return None  # another program has deleted the pod
        except ApiError as e:
            if e.status not in _DENIED:
                raise
            _warn(e)
            return self._give_up(job, progress)
        self._accepted.add(progress.pod)
        self._record(job, replace(progress, deleted=True))
        return None

    def _record(
        self, job: Mapping[str, Any], progress: Progress, spec: Mapping[str, Any] | None = None
    ) -> None:
        self._patch(job, {ANNOTATION_WITHDRAWAL: json.dumps(asdict(progress))}, spec or {})

    def _give_up(self, job: Mapping[str, Any], progress: Progress | None) -> bool:
        """Undo the changes of the withdrawal and return False."""
        if progress is not None:
            self._patch(job, {ANNOTATION_WITHDRAWAL: None}, progress.spec)
        return False

    def _complete(self, job: Mapping[str, Any], progress: Progress) -> bool:
        when = time_stamp()
        annotations = {
            ANNOTATION_WITHDRAWAL: None,
            ANNOTATION_WITHDRAWN: when,
            ANNOTATION_CANCELLED: when,
        }
        self._patch(job, annotations, progress.spec)
        return True

    def _patch(
        self,
        job: Mapping[str, Any],
        annotations: Mapping[str, str | None],
        spec: Mapping[str, Any],
    ) -> None:
        changes: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}}
        if spec:
            changes["spec"] = dict(spec)
        version = str(job["metadata"]["resourceVersion"])
        self._cluster.patch(self._path, changes, self._action, version=version)


def may_begin(job: Mapping[str, Any]) -> bool:
    """Return whether a Job is of a kind that can be withdrawn, and is in its first attempt."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    return bool(
        not spec.get("suspend")
        and spec.get("parallelism") in (None, 1)
        and spec.get("completions") in (None, 1)
        and spec.get("managedBy") in (None, _JOB_CONTROLLER)
        and 0 < int(metadata.get("generation") or 0) <= _RESUMED_ONCE
        and not metadata.get("deletionTimestamp")
        and ANNOTATION_NAMES not in annotations_of(job)
        and not any(status.get(key) for key in ("failed", "succeeded", "ready", "terminating"))
        and not any((status.get("uncountedTerminatedPods") or {}).values())
        and true_conditions(job).keys() <= {"Suspended"}
    )


def has_node(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has, or had, a node, so that its containers may have started."""
    status = pod.get("status") or {}
    return bool(
        pod["spec"].get("nodeName")
        or status.get("startTime")
        or status.get("containerStatuses")
        or status.get("initContainerStatuses")
        or status.get("phase") in ("Running", "Succeeded")
    )


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Return whether the scheduler may still bind a pod without a node."""
    status = pod.get("status") or {}
    return status.get("phase") == "Pending" and not pod["metadata"].get("deletionTimestamp")


def is_first(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a pod was created so early that it cannot replace another pod of the Job."""
    started = datetime_of((job.get("status") or {}).get("startTime"))
    created = datetime_of(pod["metadata"].get("creationTimestamp"))
    if started is None or created is None or "DisruptionTarget" in true_conditions(pod):
        return False
    return (created - started).total_seconds() < FIRST_POD_SECONDS


def _failures(job: Mapping[str, Any]) -> int:
    return int((job.get("status") or {}).get("failed") or 0)


def _was_tried(pod: Mapping[str, Any]) -> bool:
    """Return whether the scheduler has found no node for a pod."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c.get("status") == "False" for c in conditions)


def _warn(error: ApiError) -> None:
    logging.getLogger(__name__).warning("%s; the app stays where it is", error)


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


# How long a withdrawal may take, in seconds, until the caller must repeat it. The cluster fails a
# deleted pod without a node within 20 seconds (`gcCheckPeriod` in
# pkg/controller/podgc/gc_controller.go of Kubernetes).
_TIMEOUT = 30.0
# The pause between two queries, in seconds.
_PAUSE = 0.25


def prevent_start(cluster: Cluster, namespace: str, view: AppView) -> bool:
    """Keep an app's program from ever starting, and return True if it has never started.

    Return False if the program may have started, if the Job does not exist or is not the only Job
    of the app, or if the app is not a plain Job. The app is then as before.

    If this function is interrupted, the next call continues from the annotations of the Job.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app.

    Raises:
        BackendError: The cluster does not answer, or it is not decided in time whether the app
            starts. The caller must call again.
    """
    if view.supervision is None or len(view.objects) != 1:
        return False
    name = str(view.objects[0]["metadata"]["name"])
    path, action = object_path(BATCH, namespace, "jobs", name), f"withdraw {name}"
    pod_withdrawal = PodWithdrawal(cluster, namespace, path, action)
    deadline = cluster.clock() + _TIMEOUT
    while True:
        job = cluster.get_or_none(path, action)
        if job is None:
            return False
        if ANNOTATION_WITHDRAWN in annotations_of(job):
            return True
        try:
            if was_never_resumed(job):
                _set_no_pods(cluster, path, action, job)
                return True
            decision = pod_withdrawal.advance(job)
        except ApiError as e:
            if e.status != 409:
                raise
            decision = None  # another program has changed the Job or the pod
        if decision is not None:
            return decision
        if cluster.clock() > deadline:
            raise BackendError(
                f"cannot {action}: after {_TIMEOUT:.0f} seconds, the cluster has not decided"
                " whether the Job starts; try again"
            )
        cluster.sleep(_PAUSE)


def _set_no_pods(cluster: Cluster, path: str, action: str, job: Mapping[str, Any]) -> None:
    when = time_stamp()
    changes = {
        "metadata": {"annotations": {ANNOTATION_WITHDRAWN: when}},
        "spec": {"parallelism": 0},
    }
    cluster.patch(path, changes, action, version=str(job["metadata"]["resourceVersion"]))


def was_never_resumed(job: Mapping[str, Any]) -> bool:
    """Return whether a Job has been suspended since its creation.

    A missing ``status.startTime`` is no proof, because Kueue clears the field when it suspends a
    Job again. ``metadata.generation`` is 1 until the spec changes for the first time.

    The result is False for a Job that accepts partial admission, because Kueue changes the
    ``parallelism`` of such a Job.
    """
    metadata, status = job["metadata"], job.get("status") or {}
    return bool(
        job["spec"].get("suspend")
        and metadata.get("generation") == 1
        and not metadata.get("deletionTimestamp")
        and MIN_PARALLELISM not in annotations_of(job)
        and not status.get("startTime")
        and not status.get("active")
        and not {"Complete", "Failed"} & true_conditions(job).keys()
    )
