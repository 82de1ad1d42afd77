"""Make and read AppWrappers, which contain an app's pods, its Service and its pod groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx_kit.names.ids import random_id
from torchx_kit.names.limits import DNS_SERVICE, fit_name
from torchx_kit.role_templates import RoleTemplate
from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.cluster.labels import (
    LABEL_ROLE_INDEX,
    labels_of,
    object_labels,
    pod_annotations,
    pod_labels,
)
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.kubernetes_job import object_metadata
from torchx_sched_k8s.request.pods import Place, make_pod
from torchx_sched_k8s.status.events import LostPods
from torchx_sched_k8s.status.views import (
    AppView,
    RoleView,
    app_view,
    condition_reason,
    phase_times,
    role_name_of,
)
from torchx_sched_mcad.options import KubernetesMCADOpts
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.status import AppState

API_VERSION = "workload.codeflare.dev/v1beta1"
LABEL_APPWRAPPER = "appwrapper.workload.codeflare.dev"
LABEL_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
ANNOTATION_NETWORKS = "k8s.v1.cni.cncf.io/networks"
#: Port of the Service if no role has a port.
DEFAULT_PORT = 29500

JOB_STATE: dict[str, AppState] = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "RunningHoldCompletion": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Deleted": AppState.CANCELLED,
    "Failed": AppState.FAILED,
}

_LONGEST = 63
_OTHERS = re.compile(r"[^a-z0-9-]")
_NOT_IN_VARIABLES = re.compile(r"[^A-Z0-9_]")


def make_appwrapper(app: AppDef, opts: KubernetesMCADOpts) -> dict[str, Any]:
    """Return the AppWrapper of an app.

    Args:
        app: The app.
        opts: The scheduler's options.
    """
    app_id = unique_name(app)
    namespace = opts.namespace
    rank0 = f"{pod_name(app_id, 0, 0)}.{app_id}"
    hosts = {"name": hosts_variable(app.roles[0].name), "value": rank0}
    items: list[dict[str, Any]] = []
    if opts.coscheduler_name:
        items += [
            pod_group(app, role, role_idx, namespace, app_id)
            for role_idx, role in enumerate(app.roles)
        ]
    for role_idx, role in enumerate(app.roles):
        template = RoleTemplate(role)
        for k in range(role.num_replicas):
            labels = pod_labels(app, role_idx, role, k, app_id)
            if opts.coscheduler_name:
                labels[LABEL_POD_GROUP] = f"{app_id}-pg{role_idx}"
            name = pod_name(app_id, role_idx, k)
            annotations = pod_annotations(role, name)
            place = Place(app_id, namespace, labels, annotations, rank0, replica=k)
            pod = make_pod(template.render(place.values()), name, place, pod_opts(opts), plain=True)
            pod = complete_pod(pod, name, app_id, opts)
            env = pod["spec"]["containers"][0]["env"]
            if all(one["name"] != hosts["name"] for one in env):
                env.append(dict(hosts))
            items.append(pod)
    items.append(service(app, app_id, namespace, service_port(app)))
    spec: dict[str, Any] = {
        "resources": {"GenericItems": [{"replicas": 1, "generictemplate": item} for item in items]}
    }
    if opts.priority is not None:
        spec["priority"] = opts.priority
    retries = min(role.max_retries for role in app.roles)
    if retries > 0:
        set_requeuing(spec, retries, sum(role.num_replicas for role in app.roles))
    return {
        "apiVersion": API_VERSION,
        "kind": "AppWrapper",
        "metadata": object_metadata(app, app_id, object_labels(app, app_id), pod_opts(opts)),
        "spec": spec,
    }


def hosts_variable(role: str) -> str:
    """Return the name that older releases gave to the variable with the first replica's host.

    Args:
        role: Name of the app's first role.
    """
    return f"TORCHX_MCAD_{_NOT_IN_VARIABLES.sub('', role.upper())}_0_HOSTS"


def pod_opts(opts: KubernetesMCADOpts) -> KubernetesOpts:
    """Return the options that concern pods, as options of the scheduler ``kubernetes``."""
    return KubernetesOpts(
        namespace=opts.namespace,
        service_account=opts.service_account,
        image_secret=opts.image_secret,
        priority_class=opts.priority_class_name,
    )


def complete_pod(
    pod: dict[str, Any], name: str, app_id: str, opts: KubernetesMCADOpts
) -> dict[str, Any]:
    """Add a name and the fields that MCAD needs to a pod, and return the pod as an API object.

    Args:
        pod: Metadata and spec of the pod.
        name: Name of the pod.
        app_id: Name of the app in the cluster.
        opts: The scheduler's options.
    """
    pod["metadata"].update(name=name, namespace=opts.namespace)
    if opts.network:
        pod["metadata"]["annotations"][ANNOTATION_NETWORKS] = opts.network
    pod["spec"].update(hostname=name, subdomain=app_id)
    if opts.coscheduler_name:
        pod["spec"]["schedulerName"] = opts.coscheduler_name
    if opts.priority_class_name:
        pod["spec"]["priorityClassName"] = opts.priority_class_name
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def pod_name(app_id: str, role_idx: int, replica: int) -> str:
    """Return the name of a replica's pod.

    Pods of the first role are named as in older releases; other pod names also contain the role's
    index.
    """
    return f"{app_id}-{replica}" if role_idx == 0 else f"{app_id}-{role_idx}-{replica}"


def pod_group(
    app: AppDef, role: Role, role_idx: int, namespace: str, app_id: str
) -> dict[str, Any]:
    """Return the pod group of a role. The co-scheduler starts the pods of a group together."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": f"{app_id}-pg{role_idx}",
            "namespace": namespace,
            "labels": {**object_labels(app, app_id), LABEL_APPWRAPPER: app_id},
        },
        "spec": {"minMember": role.num_replicas},
    }


def service(app: AppDef, name: str, namespace: str, port: int) -> dict[str, Any]:
    """Return the headless Service that gives an app's pods host names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": object_labels(app, name)},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/instance": name},
            "ports": [{"protocol": "TCP", "port": port, "targetPort": port}],
            "sessionAffinity": "None",
        },
    }


def service_port(app: AppDef) -> int:
    """Return the last port in the roles' port maps, or torchrun's default port if there is none."""
    ports = [port for role in app.roles for port in role.port_map.values()]
    return ports[-1] if ports else DEFAULT_PORT


def set_requeuing(spec: dict[str, Any], retries: int, pods: int) -> None:
    """Let MCAD requeue an app that lost pods.

    Args:
        spec: Spec of the AppWrapper, changed in place.
        retries: How many times MCAD may requeue the app.
        pods: Number of pods below which MCAD requeues the app.
    """
    spec["schedulingSpec"] = {
        "minAvailable": pods,
        "requeuing": {
            "timeInSeconds": 300,
            "maxTimeInSeconds": 0,
            "growthType": "exponential",
            "maxNumRequeuings": retries,
        },
    }


def unique_name(app: AppDef) -> str:
    """Return a new name for an app and its Service; names of pods append numbers to this name."""
    most = max((role.num_replicas for role in app.roles), default=1)
    tail = len(f"-{len(app.roles)}-{most}")
    ident = random_id(14)
    plain = clean_name(app.name)
    rule = DNS_SERVICE.within(_LONGEST - tail - 15)
    return f"{fit_name(plain or app.name, rule)}-{ident}"


def clean_name(data: str) -> str:
    """Convert a name to lower case and remove everything but a-z, 0-9 and dashes.

    One dash at the start, and then digits at the start, are removed too. The result may be empty.
    """
    return _OTHERS.sub("", data.lower().removeprefix("-")).lstrip("0123456789")


def pods_of(wrapper: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield the pods in an AppWrapper."""
    spec = wrapper.get("spec") or {}
    for item in (spec.get("resources") or {}).get("GenericItems") or ():
        inner = item.get("generictemplate") or {}
        if inner.get("kind") == "Pod":
            yield inner


class AppWrapperBackend(Backend):
    """Runs an app as an AppWrapper of MCAD."""

    name = "mcad"
    api_version = API_VERSION
    kind = "AppWrapper"
    missing = (
        "AppWrappers (MCAD) are not installed in this cluster in the version v1beta1: use the"
        " scheduler kubernetes"
    )

    def make(self, app: AppDef, opts: KubernetesMCADOpts) -> dict[str, Any]:
        return make_appwrapper(app, opts)

    def view(self, app_id: str, objects: Sequence[Mapping[str, Any]]) -> AppView:
        [wrapper] = objects
        status = wrapper.get("status") or {}
        word = str(status.get("state") or "")
        state = JOB_STATE.get(word, AppState.UNKNOWN) if word else AppState.PENDING
        message = ""
        if state not in (AppState.RUNNING, AppState.SUCCEEDED):
            reasons = map(condition_reason, reversed(status.get("conditions") or ()))
            message = next(filter(None, reasons), "")
        roles: dict[int, RoleView] = {}
        for pod in pods_of(wrapper):
            index = int(labels_of(pod).get(LABEL_ROLE_INDEX) or 0)
            view = RoleView(index, role_name_of(pod), 0, pod, state, app_id)
            role = roles.setdefault(index, view)
            role.replicas += 1
            role.wants_pods = state == AppState.RUNNING
        started, ended = phase_times(
            wrapper, ("Running", "RunningHoldCompletion"), ("Completed", "Failed", "Deleted")
        )
        return app_view(
            self,
            app_id,
            [wrapper],
            state=state,
            message=message,
            roles=[roles[index] for index in sorted(roles)],
            started=started,
            ended=ended,
        )

    def lost_pods(self, *_: object) -> dict[int, LostPods]:
        return {}  # the pods of an AppWrapper belong to no Job


APPWRAPPER = AppWrapperBackend()
