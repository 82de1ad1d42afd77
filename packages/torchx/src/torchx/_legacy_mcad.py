"""Names of ``kubernetes_mcad_scheduler`` in older TorchX releases. TorchX needs none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx._legacy_kubernetes import to_model
from torchx_sched_k8s.cluster import labels
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob
from torchx_sched_k8s.request.pods import Place, make_pod
from torchx_sched_k8s.status.describe import described_role
from torchx_sched_mcad.appwrapper import (
    APPWRAPPER,
    JOB_STATE,
    LABEL_POD_GROUP,
    clean_name,
    complete_pod,
    make_appwrapper,
    pod_group,
    pod_opts,
    service,
    service_port,
    set_requeuing,
    unique_name,
)
from torchx_sched_mcad.options import KubernetesMCADOpts
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from kubernetes.client import V1Pod, V1Service

KubernetesMCADJob = KubernetesJob

#: Maps keys of an AppWrapper's status, whose values are numbers of pods, to these pods' states.
TASK_STATE: dict[str, AppState] = {
    "Pending dispatch": AppState.PENDING,
    "pending": AppState.PENDING,
    "running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "Unknown": AppState.UNKNOWN,
}


def cleanup_str(data: str) -> str:
    """Return the name that :func:`clean_name` makes of a name."""
    return clean_name(data)


def get_unique_truncated_appid(app: AppDef) -> str:
    """Return a new unique name for an app."""
    return unique_name(app)


def get_port_for_service(app: AppDef) -> str:
    """Return the port of an app's Service."""
    return str(service_port(app))


def enable_retry(job_spec: dict[str, Any], appwrapper_retries: int, total_pods: int) -> None:
    """Let MCAD requeue an app that lost pods.

    Args:
        job_spec: Spec of the AppWrapper, changed in place.
        appwrapper_retries: How many times MCAD may requeue the app.
        total_pods: Number of pods below which MCAD requeues the app.
    """
    set_requeuing(job_spec, appwrapper_retries, total_pods)


def create_pod_group(
    app: AppDef, role: Role, role_idx: int, namespace: str, app_id: str
) -> dict[str, Any]:
    """Return the pod group of a role, as an item of an AppWrapper."""
    group = pod_group(app, role, role_idx, namespace, app_id)
    return {"replicas": 1, "generictemplate": group}


def mcad_svc(app: AppDef, svc_name: str, namespace: str, service_port: str) -> V1Service:
    """Return the Service that gives an app's pods host names."""
    found: V1Service = to_model(service(app, svc_name, namespace, int(service_port)), "V1Service")
    return found


def pod_labels(
    app: AppDef,
    role_idx: int,
    role: Role,
    replica_id: int,
    coscheduler_name: str | None,
    app_id: str,
) -> dict[str, str]:
    """Return the labels of the pod of one replica."""
    found = labels.pod_labels(app, role_idx, role, replica_id, app_id)
    if coscheduler_name is not None:
        found[LABEL_POD_GROUP] = f"{app_id}-pg{role_idx}"
    return found


def role_to_pod(
    name: str,
    unique_app_id: str,
    namespace: str,
    role: Role,
    service_account: str | None,
    image_secret: str | None,
    coscheduler_name: str | None,
    priority_class_name: str | None,
    network: str | None,
) -> V1Pod:
    """Return the pod of one replica. The role's macros must already be substituted."""
    opts = KubernetesMCADOpts(
        namespace=namespace,
        service_account=service_account,
        priority_class_name=priority_class_name,
        image_secret=image_secret,
        coscheduler_name=coscheduler_name,
        network=network,
    )
    place = Place(unique_app_id, namespace, {}, {}, "", replica=0)
    pod = make_pod(role, name, place, pod_opts(opts), plain=True)
    found: V1Pod = to_model(complete_pod(pod, name, unique_app_id, opts), "V1Pod")
    return found


def app_to_resource(
    app: AppDef,
    namespace: str,
    service_account: str | None,
    image_secret: str | None,
    coscheduler_name: str | None,
    priority_class_name: str | None,
    network: str | None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Return the AppWrapper of an app, as plain data."""
    return make_appwrapper(
        app,
        KubernetesMCADOpts(
            namespace=namespace,
            service_account=service_account,
            priority=priority,
            priority_class_name=priority_class_name,
            image_secret=image_secret,
            coscheduler_name=coscheduler_name,
            network=network,
        ),
    )


def get_role_information(generic_items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the roles that an AppWrapper's items contain, by role name."""
    wrapper = {"spec": {"resources": {"GenericItems": list(generic_items)}}}
    view = APPWRAPPER.view("", [wrapper])
    return {role.name: described_role(role) for role in view.roles}


def get_appwrapper_status(app: Mapping[str, Any]) -> AppState:
    """Return the state of an AppWrapper; PENDING if it has no known state."""
    status = app.get("status")
    if not isinstance(status, Mapping):
        return AppState.PENDING
    return JOB_STATE.get(str(status.get("state")), AppState.PENDING)


def get_tasks_status_description(status: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of pods in an AppWrapper's status, by the keys of ``TASK_STATE``."""
    return {word: int(status[word]) for word in TASK_STATE if word in status}
