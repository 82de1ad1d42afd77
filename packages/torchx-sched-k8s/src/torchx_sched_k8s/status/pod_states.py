"""Read states of replicas, and the reasons for them, from pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx_kit.signals import exit_signal, signal_name
from torchx_kit.times import datetime_of
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_ROLE_NAME,
    COMPLETION_INDEX,
    CORE,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
    VOLCANO_INDEX,
    annotations_of,
    labels_of,
    main_container,
    object_path,
)
from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, ReplicaStatus

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: Fields of pods to drop while a list is parsed: they are not used and take most of its memory.
_UNUSED_FIELDS = frozenset(
    {"managedFields", "env", "envFrom", "volumeMounts", "volumes", "tolerations", "affinity"}
    | {"command", "args", "resources", "ports", "livenessProbe", "readinessProbe", "startupProbe"}
    | {"securityContext", "lifecycle", "allocatedResources", "imageID", "containerID"}
    | {"hostIPs", "podIPs", "imagePullSecrets"}
)

_PHASES = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
}
#: Reasons for which the containers of every new pod wait. Status messages leave them out.
_ORDINARY = frozenset({"ContainerCreating", "PodInitializing", ""})
_DISRUPTIONS = {
    "PreemptionByScheduler": "Preempted",
    "EvictionByEvictionAPI": "Evicted",
    "DeletionByTaintManager": "Evicted",
}
#: A name of a Job's pod ends with the index and random text, one of Volcano's pod with the index.
_INDEX_OF_NAME = re.compile(r"-(\d+)(?:-[a-z0-9]{5})?\Z")


@dataclass(kw_only=True)
class Pod(ReplicaStatus):
    """One pod, and what it shows of its replica.

    The exit code may be that of the container's run before a restart.

    Attributes:
        name: Name of the pod.
        role_index: Index of the role in its app; -1 if unknown.
        created: Time of the pod's creation, as text in the form of the API.
        container: Name of the role's container.
        has_log: Whether the container may have written to its log.
        leaving: Whether the pod is being deleted.
        attempt: How many times JobSet, or the supervisor of an app with the option ``requeue``, had
            restarted the app when the pod was created.
        uid: Unique id of the pod; a later pod may have the same name.
        disrupted: Whether the pod was evicted or preempted, or its node was lost.
    """

    name: str
    role_index: int
    created: str
    container: str
    has_log: bool
    leaving: bool
    attempt: int
    uid: str
    disrupted: bool

    @property
    def has_ended(self) -> bool:
        """Whether the role's container has ended."""
        return self.state in (AppState.SUCCEEDED, AppState.FAILED)


def read_pod(pod: Mapping[str, Any]) -> Pod:
    """Convert a pod in the form of the API to a :class:`Pod`."""
    metadata = pod["metadata"]
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    labels = labels_of(pod)
    name = str(metadata["name"])
    container = str(main_container(pod).get("name") or "")
    statuses = status.get("containerStatuses") or [{}]
    main = next((one for one in statuses if one.get("name") == container), statuses[0])
    state = _PHASES.get(str(status.get("phase")), AppState.UNKNOWN)
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    now = main.get("state") or {}
    ended = now.get("terminated")
    if state == AppState.RUNNING and ended and spec.get("restartPolicy") == "Never":
        # the role's container has ended, but a sidecar still runs
        state = AppState.SUCCEEDED if ended.get("exitCode") == 0 else AppState.FAILED
    reason = _reason(state, status, main, now) or _node_problem(state, spec, conditions)
    last = ended or (main.get("lastState") or {}).get("terminated") or {}
    host = spec.get("hostname") or name
    if spec.get("subdomain"):
        host = f"{host}.{spec['subdomain']}"
    return Pod(
        name=name,
        role=str(annotations_of(pod).get(ANNOTATION_ROLE_NAME) or labels.get(LABEL_ROLE_NAME, "")),
        role_index=int(labels.get(LABEL_ROLE_INDEX) or -1),
        id=_index_of(pod, name),
        created=str(metadata.get("creationTimestamp") or ""),
        state=state,
        reason="; ".join(filter(None, (reason, _others_run(container, state, status)))),
        exit_code=last.get("exitCode"),
        node=spec.get("nodeName"),
        hostname=host,
        hostaddr=status.get("podIP"),
        restarts=int(main.get("restartCount") or 0),
        container=container,
        has_log=bool("running" in now or last or state in (AppState.SUCCEEDED, AppState.FAILED)),
        leaving=bool(metadata.get("deletionTimestamp")),
        attempt=int(
            labels.get("jobset.sigs.k8s.io/restart-attempt")
            or annotations_of(pod).get(ANNOTATION_ATTEMPT)
            or 0
        ),
        uid=str(metadata.get("uid") or name),
        disrupted=conditions.get("DisruptionTarget") == "True",
        started=datetime_of((now.get("running") or last).get("startedAt")),
        ended=datetime_of((ended or {}).get("finishedAt")),
    )


def list_pods(cluster: Cluster, namespace: str, label_selector: str, action: str) -> list[Pod]:
    """Return the pods that a selector matches.

    Args:
        cluster: The cluster.
        namespace: Namespace of the pods.
        label_selector: Label selector of the pods.
        action: The action in error messages, as in "cannot <action>".
    """
    path = object_path(CORE, namespace, "pods")
    query = {"labelSelector": label_selector}
    pods = cluster.list_items(path, action, query, object_hook=_without_unused_fields)
    return [read_pod(pod) for pod in pods]


def _without_unused_fields(data: dict[str, Any]) -> dict[str, Any]:
    for field in _UNUSED_FIELDS & data.keys():
        del data[field]
    return data


def latest(pods: Iterable[Pod]) -> list[Pod]:
    """Return pods in the order of their attempts; the last pod is of the latest attempt."""
    # of several pods created in the same second, the pod that has not ended is the latest
    return sorted(pods, key=lambda pod: (pod.attempt, pod.created, not pod.has_ended, pod.name))


def _index_of(pod: Mapping[str, Any], name: str) -> int:
    for held in (labels_of(pod), annotations_of(pod)):
        for key in (LABEL_REPLICA_ID, COMPLETION_INDEX, VOLCANO_INDEX):
            if str(held.get(key, "")).isdigit():
                return int(held[key])
    return index_of_name(name)


def index_of_name(name: str) -> int:
    """Return the index of the replica in the name of a pod; 0 if the name contains none."""
    found = _INDEX_OF_NAME.search(name)
    return int(found[1]) if found else 0


def _others_run(container: str, state: AppState, status: Mapping[str, Any]) -> str:
    """Return which other containers keep a pod from ending; empty if there are none.

    A pod ends with its last container. A sidecar is no such container, because it is an init
    container (https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/).

    Args:
        container: Name of the role's container.
        state: State of the replica.
        status: Status of the pod.
    """
    if state not in (AppState.SUCCEEDED, AppState.FAILED):
        return ""
    names = [
        repr(str(one.get("name")))
        for one in status.get("containerStatuses") or ()
        if one.get("name") != container and "running" in (one.get("state") or {})
    ]
    verb = "runs" if len(names) == 1 else "run"
    return f"the pod does not end, because {' and '.join(names)} still {verb}" if names else ""


def _node_problem(state: AppState, spec: Mapping[str, Any], conditions: Mapping[Any, Any]) -> str:
    """Return a message if the node of a running pod is not ready; otherwise empty.

    For each pod of such a node, the control plane sets the condition ``Ready`` to false. The
    condition ``ContainersReady`` stays true, because only the node updates it.
    """
    if state != AppState.RUNNING or spec.get("readinessGates"):
        return ""
    if conditions.get("Ready") != "False" or conditions.get("ContainersReady") != "True":
        return ""
    return f"node {spec.get('nodeName')} is not ready: it no longer answers the cluster"


def _reason(
    state: AppState,
    status: Mapping[str, Any],
    main: Mapping[str, Any],
    now: Mapping[str, Any],
) -> str:
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    disruption = conditions.get("DisruptionTarget") or {}
    if disruption.get("status") == "True":
        # prefer the pod's reason, which users know: Evicted instead of TerminationByKubelet
        reason = str(status.get("reason") or disruption.get("reason") or "")
        return _with_message(
            _DISRUPTIONS.get(reason, reason or "Disrupted"), disruption.get("message")
        )
    if status.get("reason") == "DeadlineExceeded":
        return "time limit reached (option time)"
    if status.get("reason") and state != AppState.RUNNING:
        return _with_message(status["reason"], status.get("message"))
    inits = [one.get("state") or {} for one in status.get("initContainerStatuses") or ()]
    for ending in (one.get("terminated") for one in (now, *inits)):
        if ending and (ending.get("exitCode") or ending.get("reason") == "OOMKilled"):
            return _exit_reason(ending)
    if state == AppState.PENDING:
        scheduled = conditions.get("PodScheduled") or {}
        if scheduled.get("status") == "False":
            return _with_message(
                scheduled.get("reason") or "Unschedulable", scheduled.get("message")
            )
        for one in _waiting(status):
            return _with_message(one["reason"], one.get("message"))
        return ""
    waiting = now.get("waiting") or {}
    if state == AppState.RUNNING and waiting.get("reason") not in (*_ORDINARY, None):
        return _with_message(waiting["reason"], waiting.get("message"))
    last = (main.get("lastState") or {}).get("terminated")
    if last and main.get("restartCount"):
        return f"restarted after {_exit_reason(last)}"
    return ""


def _waiting(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(field) or ():
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason", "") not in _ORDINARY:
                yield waiting


def _exit_reason(terminated: Mapping[str, Any]) -> str:
    code = int(terminated.get("exitCode") or 0)
    signal = signal_name(exit_signal(code) or int(terminated.get("signal") or 0))
    how = f"exit code {code}" + (f" ({signal})" if signal else "")
    reason = str(terminated.get("reason") or "")
    if reason in ("", "Error", "Completed"):
        return _with_message(how, terminated.get("message"))
    return _with_message(f"{reason}: {how}", terminated.get("message"))


def _with_message(reason: str, message: Any) -> str:
    text = one_line(message or "")
    return f"{reason}: {text}" if text else str(reason)
