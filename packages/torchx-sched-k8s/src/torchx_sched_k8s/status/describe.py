"""Describe an app from its Jobs, its pods and events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.jobs.pending_reasons import explained
from torchx_sched_k8s.cluster.kueue import waiting_in_queue
from torchx_sched_k8s.cluster.labels import main_container, min_replicas_of
from torchx_sched_k8s.request.pods import described_env, unescape
from torchx_sched_k8s.status.events import LostPods, last_warning
from torchx_sched_k8s.status.pending_reasons import PENDING
from torchx_sched_k8s.status.pod_states import Pod, latest
from torchx_sched_k8s.status.views import (
    AppView,
    RoleView,
    creation,
)
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE, UNKNOWN
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def describe(
    cluster: Cluster, namespace: str, app_id: str, view: AppView, pods: Sequence[Pod]
) -> DescribeAppResponse:
    """Return the description of an app.

    Args:
        cluster: The cluster. It is queried for events if a pod is missing, and for events or
            Kueue's workload if ``view`` and ``pods`` do not show why the app waits.
        namespace: Namespace of the app.
        app_id: The app.
        view: The app's data, read from its Jobs.
        pods: All pods of the app.
    """
    by_role = {role.index: _pods_of(role, pods) for role in view.roles}
    lost = view.backend.lost_pods(cluster, namespace, view, by_role)
    statuses = [
        _role_status(role, view, by_role[role.index], lost.get(role.index) or LostPods())
        for role in view.roles
    ]
    replicas = [replica for status in statuses for replica in status.replicas]
    state, message = view.state, view.message
    if not is_terminal(state) and state != AppState.UNKNOWN:
        states = {replica.state for replica in replicas}
        if AppState.RUNNING in states:
            state, message = AppState.RUNNING, _first_reason(replicas, AppState.PENDING)
            message = message or _first_reason(replicas, AppState.RUNNING)
        elif states == {AppState.SUCCEEDED} or (
            states & {AppState.FAILED, AppState.SUCCEEDED}
            and any(role.wants_pods for role in view.roles)
        ):
            # other replicas wait, or the controller has not ended the Jobs yet
            state = AppState.RUNNING
            kinds = (AppState.FAILED, AppState.PENDING, AppState.SUCCEEDED)
            message = next(filter(None, (_first_reason(replicas, one) for one in kinds)), "")
        else:
            if state == AppState.SUBMITTED and pods:
                state = AppState.PENDING
            waiting = waiting_in_queue(cluster, namespace, view.objects)
            message = explained(waiting or message, PENDING)
            message = message or _first_reason(replicas, AppState.PENDING)
            message = message or explained(_event(cluster, namespace, view, pods), PENDING)
    elif state == AppState.FAILED:
        why = _first_reason(replicas, AppState.FAILED)
        message = "; ".join(dict.fromkeys(part for part in (why, message) if part))
    if view.unfinished and not is_terminal(state):
        message = view.unfinished
    elif view.supervision is not None:
        ended = is_terminal(view.state) and all(is_terminal(role.state) for role in view.roles)
        message = view.supervision.message(cluster, namespace, pods, message, ended=ended)
    described = DescribeAppResponse(
        app_id,
        state,
        num_restarts=max([view.restarts, *(replica.restarts for replica in replicas)]),
        msg=message or NONE,
        metadata=dict(view.metadata),
        roles_statuses=statuses,
        roles=[described_role(role) for role in view.roles],
    )
    # Pods may wait for nodes after their Job has started, so use this time only once they run.
    started = view.started if state == AppState.RUNNING or is_terminal(state) else None
    set_times(described, creation(view.objects), replicas, started=started, ended=view.ended)
    if view.supervision is not None:
        described.attempts = view.supervision.attempts(state, described.ended)
    return described


def _pods_of(role: RoleView, pods: Iterable[Pod]) -> dict[int, list[Pod]]:
    found: dict[int, list[Pod]] = {}
    for pod in pods:
        if pod.role_index == role.index or (pod.role_index < 0 and pod.role == role.name):
            found.setdefault(pod.id, []).append(pod)
    return {index: latest(attempts) for index, attempts in found.items()}


def _role_status(
    role: RoleView, view: AppView, pods: Mapping[int, list[Pod]], lost: LostPods
) -> RoleStatus:
    ended = role.state
    failed = [f"replica {i} failed" for i in sorted(pods) if pods[i][-1].state == AppState.FAILED]
    # If another replica failed, or the supervisor ended the role, a lost pod was replaced before.
    others = bool(failed or role.ended_for)
    causes = {i: why for i, why in lost.reasons.items() if i in role.failed or not others}
    failed += [f"replica {i} was {causes[i]}" for i in sorted(causes)]
    broken = role.ended_for or next(iter(failed), "its role failed")
    failures = [_failures(pods.get(index) or []) for index in range(role.replicas)]
    total = max(sum(failures), role.failures)
    replicas = []
    for index in range(role.replicas):
        attempts = pods.get(index) or []
        pod = attempts[-1] if attempts else None
        count = failures[index] if role.limit_is_per_replica else total
        is_final = not view.runs_again and role.limit is not None and count > role.limit
        state = _replica_state(role, ended, index, pod, is_final=is_final)
        reason = pod.reason if pod is not None else ""
        if state != AppState.FAILED:
            is_missing = state == AppState.PENDING and pod is None
            reason = reason or _reason_of_attempt(attempts, index, lost, is_missing=is_missing)
        elif state == AppState.FAILED and pod is None:
            reason = causes.get(index, "")
        if state == AppState.FAILED and (pod is None or not pod.has_ended) and not reason:
            reason = f"ended because {broken}"
        if state == AppState.PENDING:
            reason = explained(reason, PENDING)
        replicas.append(
            ReplicaStatus(
                index,
                state,
                role.name,
                hostname=pod.hostname if pod else "",
                hostaddr=pod.hostaddr if pod else None,
                reason=reason,
                exit_code=pod.exit_code if pod else None,
                node=pod.node if pod else None,
                restarts=max(len(attempts) - 1, 0)
                + sum(one.restarts for one in attempts)
                + lost.counts.get(index, 0),
                started=pod.started if pod and state != AppState.PENDING else None,
                ended=pod.ended if pod and is_terminal(state) else None,
            )
        )
    return RoleStatus(role.name, replicas)


def _reason_of_attempt(
    attempts: Sequence[Pod], index: int, lost: LostPods, *, is_missing: bool
) -> str:
    """Return why a replica's pod cannot be created, or why its earlier pod was replaced or lost.

    The text is empty if there is no known reason.

    Args:
        attempts: The replica's existing pods.
        index: Index of the replica.
        lost: The lost pods of the replica's role.
        is_missing: Whether the replica waits for its next pod.
    """
    if is_missing and lost.refusal:
        return lost.refusal
    if len(attempts) > 1 and attempts[-2].reason:
        reason = attempts[-2].reason
        if attempts[-2].disrupted:
            return f"{reason[0].lower()}{reason[1:]}, replaced"
        return f"restarted after {reason}"
    if index in lost.reasons:
        return f"{lost.reasons[index]}, {'not yet replaced' if is_missing else 'replaced'}"
    return ""


def _failures(attempts: Sequence[Pod]) -> int:
    """Return how many pods of a replica have failed; disrupted pods do not count as failures."""
    return sum(pod.state == AppState.FAILED and not pod.disrupted for pod in attempts)


def _replica_state(
    role: RoleView, ended: AppState, index: int, pod: Pod | None, *, is_final: bool
) -> AppState:
    """Return the state of a replica.

    Args:
        role: The role.
        ended: The state of the role.
        index: Index of the replica.
        pod: The latest pod of the replica.
        is_final: Whether no pod follows after a failure of this pod.
    """
    if index in role.succeeded or (pod is not None and pod.state == AppState.SUCCEEDED):
        return AppState.SUCCEEDED
    if ended in (AppState.CANCELLED, AppState.FAILED):
        return AppState.FAILED if pod is not None and pod.state == AppState.FAILED else ended
    if index in role.failed:
        return AppState.FAILED
    if ended == AppState.SUCCEEDED:
        return AppState.SUCCEEDED  # enough of the other replicas have succeeded
    if pod is None:
        return AppState.PENDING if role.wants_pods else ended
    if pod.state == AppState.FAILED and role.wants_pods and (pod.disrupted or not is_final):
        return AppState.PENDING  # the replica's next attempt has no pod yet
    return pod.state


def _first_reason(replicas: Iterable[ReplicaStatus], state: AppState) -> str:
    matching = [r for r in replicas if r.state == state and r.reason]
    # prefer a replica with an exit code: it failed by itself, and may have caused the others' end
    matching.sort(key=lambda r: r.exit_code is None)
    return f"{matching[0].role}/{matching[0].id}: {matching[0].reason}" if matching else ""


def _event(cluster: Cluster, namespace: str, view: AppView, pods: Sequence[Pod]) -> str:
    """Return the text of the last warning event of a Job without pods, or of a waiting pod.

    The backend's own reason comes first. The text is empty if there is no event.
    """
    if reason := view.backend.waiting_reason(cluster, namespace, view):
        return reason
    missing = (role.owner for role in view.roles if role.wants_pods and not _pods_of(role, pods))
    waiting = (pod.name for pod in pods if pod.state == AppState.PENDING and not pod.has_log)
    about = next(missing, "") or next(waiting, "")
    return last_warning(cluster, namespace, about) if about else ""


def described_role(role: RoleView) -> Role:
    """Return a role as its pod template describes it; other fields have their defaults."""
    main = main_container(role.template)
    spec = role.template.get("spec") or {}
    command = [unescape(str(argument)) for argument in main.get("command") or ()]
    limits = (main.get("resources") or {}).get("limits") or {}
    return Role(
        role.name,
        str(main.get("image") or UNKNOWN),
        min_replicas=min_replicas_of(role.template),
        entrypoint=command[0] if command else MISSING,
        args=command[1:],
        env=described_env(main.get("env") or []),
        num_replicas=role.replicas,
        max_retries=role.retries,
        resource=_resource(limits),
        port_map={
            str(port.get("name") or port["containerPort"]): int(port["containerPort"])
            for port in main.get("ports") or ()
        },
        mounts=_mounts(spec, main),
    )


def _mounts(
    spec: Mapping[str, Any], main: Mapping[str, Any]
) -> list[BindMount | VolumeMount | DeviceMount]:
    """Return the mounts that the AppDef contains, without mounts from scheduler options."""
    volumes = {str(one.get("name")): one for one in spec.get("volumes") or ()}
    privileged = bool((main.get("securityContext") or {}).get("privileged"))
    found: list[BindMount | VolumeMount | DeviceMount] = []
    for mount in main.get("volumeMounts") or ():
        name, path = str(mount.get("name")), str(mount.get("mountPath"))
        read_only = bool(mount.get("readOnly"))
        source = volumes.get(name) or {}
        if not name.startswith("mount-"):
            continue
        if "persistentVolumeClaim" in source:
            claim = str(source["persistentVolumeClaim"].get("claimName"))
            found.append(VolumeMount(claim, path, read_only=read_only))
        elif "hostPath" in source:
            on_node = str(source["hostPath"].get("path"))
            if privileged and on_node.startswith("/dev/"):
                found.append(DeviceMount(on_node, path, "r" if read_only else "rwm"))
            else:
                found.append(BindMount(on_node, path, read_only=read_only))
    return found


def _resource(limits: Mapping[str, Any]) -> Resource:
    from kubernetes.utils import quantity

    library: Any = quantity  # the library has no types
    amounts = {name: library.parse_quantity(text) for name, text in limits.items()}
    cpu: Any = float(amounts.get("cpu", -1))
    return Resource(
        cpu=int(cpu) if cpu == int(cpu) else cpu,
        gpu=sum(int(number) for name, number in amounts.items() if name.endswith("/gpu")),
        memMB=int(amounts["memory"] / 10**6) if "memory" in amounts else -1,
        devices={
            name: int(number)
            for name, number in amounts.items()
            if "/" in name and not name.endswith("/gpu")
        },
    )
