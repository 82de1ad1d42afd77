"""What is told of an app that is started again as a whole, beside what its Jobs say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.events import last_warning
from torchx_sched_k8s.cluster.labels import MANIFESTS
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_sched_k8s.status.job_states import SUPERVISOR
from torchx_sched_k8s.status.pod_states import Pod, latest
from torchx_sched_k8s.status.views import AppView, batch_view
from torchx_specs.model.status import AppState, is_terminal


def completed(cluster: Cluster, namespace: str, view: AppView) -> AppView:
    """Returns an app with the roles whose Jobs are not there just now, by one request."""
    path = object_path(CORE, namespace, "configmaps", view.app_id)
    try:
        held = cluster.get_or_none(path, f"look for the roles of {view.app_id}")
    except ApiError:
        return view  # not everybody may read config maps
    if held is None or view.supervisor is None:
        return view
    there = {str(one["metadata"]["name"]) for one in view.objects}
    try:
        manifests: list[dict[str, Any]] = json.loads(held["data"][MANIFESTS])
        absent = [one for one in manifests if one["metadata"]["name"] not in there]
        return batch_view(view.app_id, view.objects, absent)
    except (ValueError, KeyError, TypeError):
        return view  # somebody has made another


def told_of(
    cluster: Cluster, namespace: str, view: AppView, pods: Sequence[Pod], message: str
) -> str:
    """Returns an app's message with what is to be told of starting it again.

    Args:
        cluster: asked for an event where nothing else tells why there is no supervisor
        namespace: of the app
        view: the app
        pods: all of the app
        message: what there is to tell beside that
    """
    note = view.note
    if view.supervised and not is_terminal(view.state):
        trouble = _trouble(cluster, namespace, view, pods)
        if trouble:
            note = "; ".join(part for part in (note, trouble) if part)
    return "; ".join(dict.fromkeys(part for part in (note, message) if part))


def _trouble(cluster: Cluster, namespace: str, view: AppView, pods: Sequence[Pod]) -> str:
    """Returns why the supervisor does not run, empty if it does."""
    own = latest(pod for pod in pods if pod.role_index < 0 and not pod.role)
    status = (view.supervisor or {}).get("status") or {}
    reason = ""
    if own:
        waits = own[-1].state == AppState.PENDING or own[-1].state == AppState.FAILED
        reason = own[-1].reason if waits and not own[-1].leaving else ""
    elif status.get("startTime") and not status.get("active"):
        reason = last_warning(cluster, namespace, view.app_id)
    return f"{SUPERVISOR} does not run: {reason}" if reason else ""
