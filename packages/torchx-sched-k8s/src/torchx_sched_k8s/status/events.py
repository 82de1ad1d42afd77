"""Read events: why objects wait, and which pods of a role were lost or refused.

A pod that was deleted, preempted, or evicted through the API leaves only events, which a cluster
keeps for an hour. Lost pods are queried only for roles that may have lost a pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torchx_kit.times import datetime_of
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    BATCH,
    CORE,
    LABEL_ROLE_INDEX,
    labels_of,
    object_path,
)
from torchx_sched_k8s.status.pod_states import Pod, index_of_name
from torchx_sched_k8s.status.views import AppView, RoleView, earliest
from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: Maximum number of events to read for one object.
_MOST_EVENTS = 500
#: A Job creates its first pods within _PROMPT_SECONDS, plus _SECONDS_PER_REPLICA for each replica.
#: A pod that is created later may replace a lost pod.
_PROMPT_SECONDS = 2.0
_SECONDS_PER_REPLICA = 0.1
#: Maximum number of roles to examine.
_MOST_ROLES = 4
#: Maximum number of replicas of a role for which the reason of the latest lost pod is queried.
_MOST_PODS = 4
_POD_OF_EVENT = re.compile(r"(?:Created|Deleted) pod: (\S+)")
#: Maps the reason of an event that explains a pod's end to the word shown to users.
_DISRUPTIONS = {"Preempted": "preempted", "Evicted": "evicted", "TaintManagerEviction": "evicted"}
_DELETING_ACTIONS = frozenset({"RestartPod", "RestartTask"})


def last_warning(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the text of the last warning event of an object, by one request.

    The text is empty if there is no such event, or if the cluster refuses the request.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
    """
    events = list_events(cluster, namespace, name, "type=Warning")
    warnings = [event for event in events if event.get("type") == "Warning"]
    # times have seconds only; of events in the same second, prefer the most detailed message
    last = max(warnings, key=lambda e: (event_time(e), len(event_text(e))), default=None)
    return event_text(last) if last else ""


def waiting_reason(cluster: Cluster, namespace: str, name: str) -> str:
    """Return why a PodGroup of Volcano waits, by one request; empty if there is no known reason.

    Volcano reports an incomplete gang in a warning event, and a full queue in a *normal* event with
    the reason ``Unschedulable`` (``pkg/scheduler/plugins/capacity``, ``proportion`` and
    ``overcommit``). The returned text has both messages, the queue's message first. If the queue's
    message is older than the warning, it no longer applies and is left out.

    Args:
        cluster: The cluster.
        namespace: Namespace of the PodGroup.
        name: Name of the PodGroup.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for event in sorted(
        list_events(cluster, namespace, name, "involvedObject.kind=PodGroup"), key=event_time
    ):
        if event.get("type") == "Warning" or event.get("reason") == "Unschedulable":
            newest[str(event.get("type"))] = event
    warning, full = newest.get("Warning"), newest.get("Normal")
    if full and warning and event_time(full) >= event_time(warning):
        return f"{event_text(full)}; {one_line(warning.get('message') or '')}".rstrip("; ")
    found = warning or full
    return event_text(found) if found else ""


def list_events(cluster: Cluster, namespace: str, name: str, only: str) -> list[Mapping[str, Any]]:
    """Return at most 500 events of an object; none if the cluster refuses the one request.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
        only: Another selector of fields, such as ``involvedObject.kind=Pod``.
    """
    selector = f"involvedObject.name={name},{only}"
    query: dict[str, object] = {"fieldSelector": selector, "limit": _MOST_EVENTS}
    try:
        action = f"list the events of {name}"
        response = cluster.get(object_path(CORE, namespace, "events"), action, query)
    except ApiError:
        return []
    return list(response.get("items") or ())


def event_text(event: Mapping[str, Any]) -> str:
    """Return the reason and the message of an event on one line."""
    text = f"{event.get('reason') or 'Warning'}: {event.get('message') or ''}"
    return one_line(text).rstrip(": ")


def event_time(event: Mapping[str, Any]) -> str:
    """Return when an event last happened, in the text form of the API; empty if unknown."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")


@dataclass(frozen=True)
class LostPods:
    """The lost and refused pods of one role.

    Attributes:
        counts: Maps the index of a replica to the number of its lost pods.
        reasons: Maps the index of a replica to the reason for which its latest pod was lost.
        refusal: Why the role's Job cannot create a pod; empty if it can, or if this is unknown.
    """

    counts: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    refusal: str = ""


def lost_pods_of_jobs(
    cluster: Cluster,
    namespace: str,
    view: AppView,
    pods: Mapping[int, Mapping[int, Sequence[Pod]]],
) -> dict[int, LostPods]:
    """Return the lost pods by the index of their role, for roles that may have lost a pod.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app's data, read from its Jobs.
        pods: The pods by the index of the role and the index of the replica.
    """
    suspects = [role for role in view.roles if _may_have_lost_pods(role, pods[role.index])]
    return {
        role.index: _lost_pods(cluster, namespace, role, pods[role.index])
        for role in suspects[:_MOST_ROLES]
    }


def replaced_volcano_pods(
    cluster: Cluster, namespace: str, view: AppView, pods: Mapping[int, Mapping[int, Sequence[Pod]]]
) -> dict[int, LostPods]:
    """Return the lost pods of a Volcano Job by the index of their role.

    Without a restart policy, Volcano replaces a lost pod by a new pod of the same name. Two facts
    show a replacement: the new pod was created after the Job began to run, and there are events
    with the same pod name but another uid. After a restart by a policy, all pods are new, and no
    event names the pod that was lost; so the result is empty if the Job was restarted.
    """
    status = view.objects[0].get("status") or {}
    running = [
        str(one.get("lastTransitionTime") or "")
        for one in status.get("conditions") or ()
        if one.get("status") == "Running"
    ]
    if view.restarts or not all(running) or not running:
        return {}
    late = [
        (role, index, attempts[-1])
        for role, found in pods.items()
        for index, attempts in sorted(found.items())
        if attempts[-1].created > min(running)
    ]
    lost: dict[int, LostPods] = {}
    for role, index, pod in late[:_MOST_PODS]:
        events = list_events(cluster, namespace, pod.name, "involvedObject.kind=Pod")
        earlier = [e for e in events if (e.get("involvedObject") or {}).get("uid") != pod.uid]
        if not earlier:
            continue
        words = _disruption(earlier)
        words = words or f"deleted: pod {pod.name} was deleted or evicted, not by its Job"
        found = lost.setdefault(role, LostPods())
        found.counts[index] = len({e["involvedObject"].get("uid") for e in earlier})
        found.reasons[index] = words
    return lost


def failed_volcano_pods(
    view: AppView, pods: Mapping[int, Mapping[int, Sequence[Pod]]]
) -> dict[int, LostPods]:
    """Return the pods that Volcano deleted after the last retry, by the index of their role.

    The action ``RestartPod`` or ``RestartTask`` deletes pods even after the last retry
    (``killPods`` in ``pkg/controllers/job/job_controller_actions.go``, 1.12). Volcano also deletes
    the pods that still run, so each missing pod has ended.
    """
    lost: dict[int, LostPods] = {}
    for task in (view.objects[0].get("spec") or {}).get("tasks") or ():
        actions = {str(policy.get("action")) for policy in task.get("policies") or ()}
        for action in sorted(actions & _DELETING_ACTIONS):
            role = int(labels_of(task["template"]).get(LABEL_ROLE_INDEX) or 0)
            wanted = set(range(int(task.get("replicas") or 1)))
            for index in wanted - pods.get(role, {}).keys():
                reason = f"deleted: Volcano's {action} keeps no pod, so exit code and log are lost"
                lost.setdefault(role, LostPods()).reasons[index] = reason
    return lost


def _may_have_lost_pods(role: RoleView, pods: Mapping[int, Sequence[Pod]]) -> bool:
    if not role.wants_pods and not is_terminal(role.state):
        return False
    if role.state != AppState.SUCCEEDED and any(
        not pods.get(index) and index not in role.succeeded for index in range(role.replicas)
    ):
        return True
    # A JobSet has no start time; its first pod is as good, unless the role has only one replica.
    started = datetime_of(role.started) or earliest(one[0].created for one in pods.values())
    if started is None:
        return False
    latest = started + timedelta(seconds=_PROMPT_SECONDS + _SECONDS_PER_REPLICA * role.replicas)
    alone = [datetime_of(found[0].created) for found in pods.values() if len(found) == 1]
    return any(created is not None and created > latest for created in alone)


def _lost_pods(
    cluster: Cluster,
    namespace: str,
    role: RoleView,
    pods: Mapping[int, Sequence[Pod]],
) -> LostPods:
    created: dict[str, tuple[str, str]] = {}  # the time, and the uid of the Job, by the pod's name
    deleted: set[str] = set()
    warnings: list[tuple[str, str]] = []
    for event in list_events(cluster, namespace, role.owner, "involvedObject.kind=Job"):
        uid = str((event.get("involvedObject") or {}).get("uid") or "")
        if role.owner_uid and uid and uid != role.owner_uid:
            continue  # an event of an earlier Job of that name, deleted by a restart of the app
        found = _POD_OF_EVENT.search(str(event.get("message") or ""))
        if event.get("reason") == "SuccessfulCreate" and found:
            created[found[1]] = event_time(event), uid
        elif event.get("reason") == "SuccessfulDelete" and found:
            deleted.add(found[1])
        elif event.get("reason") == "FailedCreate":
            warnings.append((event_time(event), event_text(event)))
    present = {pod.name for attempts in pods.values() for pod in attempts}
    gone = created.keys() - deleted - present
    failed = sum(pod.state == AppState.FAILED for found in pods.values() for pod in found)
    if is_terminal(role.state) and (failed or role.ended_for or role.state != AppState.FAILED):
        # The Job has deleted its last pods, but a cluster keeps few events of these deletions. So
        # only a pod counts after which the Job has created another one for the replica. A role
        # that failed without a failed pod has failed because a pod was lost; so has a replica.
        newest = {index_of_name(n): n for n in sorted(created, key=lambda n: created[n])}
        gone -= {n for i, n in newest.items() if not pods.get(i) and i not in role.failed}
    if gone:
        # The pods were listed before the events, so the Job may have created a pod in between.
        gone -= _existing_pods(cluster, namespace, role.owner)
    if gone:
        # With a Job that was deleted, or replaced by a restart of the app, its pods vanish.
        owner = _uid_of_job(cluster, namespace, role.owner)
        gone = {name for name in gone if owner and created[name][1] in ("", owner)}
    lost: dict[int, list[str]] = {}
    for name in sorted(gone, key=lambda name: created[name]):
        lost.setdefault(index_of_name(name), []).append(name)
    # a Job counts a deleted pod as a failure, but not an evicted pod
    counted = role.state == AppState.FAILED or role.failures > failed
    reasons = {}
    for index in sorted(lost)[:_MOST_PODS]:
        name = lost[index][-1]
        reasons[index] = _reason_of_loss(cluster, namespace, name, counted=counted)
    last_warning = max(warnings, default=("", ""))
    refused = last_warning[0] >= max(created.values(), default=("", ""))[0]
    return LostPods(
        {index: len(names) for index, names in lost.items()},
        reasons,
        last_warning[1] if refused else "",
    )


def _existing_pods(cluster: Cluster, namespace: str, owner: str) -> set[str]:
    """Return the names of the existing pods of a Job."""
    path, action = object_path(CORE, namespace, "pods"), f"look for lost pods of {owner}"
    query = {"labelSelector": f"job-name={owner}"}
    return {str(pod["metadata"]["name"]) for pod in cluster.list_items(path, action, query)}


def _uid_of_job(cluster: Cluster, namespace: str, name: str) -> str:
    """Return a Job's unique id; empty if the Job does not exist, is being deleted or is hidden."""
    try:
        job = cluster.get_or_none(object_path(BATCH, namespace, "jobs", name), f"find {name}")
    except ApiError as e:
        if e.status == 403:  # the rights for JobSets need not include this one
            return ""
        raise
    metadata = (job or {}).get("metadata") or {}
    return "" if metadata.get("deletionTimestamp") else str(metadata.get("uid") or "")


def _reason_of_loss(cluster: Cluster, namespace: str, name: str, *, counted: bool) -> str:
    events = list_events(cluster, namespace, name, "involvedObject.kind=Pod")
    if words := _disruption(events):
        return words
    if counted:
        return f"deleted: pod {name} was deleted by somebody, not by its Job"
    return f"evicted: pod {name} was removed through the eviction API (as kubectl drain does)"


def _disruption(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the event of a pod's disruption as text; empty if there is none."""
    for event in events:
        words = _DISRUPTIONS.get(str(event.get("reason")))
        message = one_line(event.get("message") or "")
        # the taint manager reports a cancelled eviction under the same reason
        if words and not message.startswith("Cancelling"):
            return f"{words}: {message}"
    return ""
