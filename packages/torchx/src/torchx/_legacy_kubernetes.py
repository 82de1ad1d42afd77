"""Names of ``kubernetes_scheduler`` in older TorchX releases. TorchX itself needs none of them.

Functions that return objects of the kubernetes library import the library when called.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.backends.volcano import JOB_STATES, VOLCANO
from torchx_sched_k8s.options import RESERVED_MEMMB, RESERVED_MILLICPU, KubernetesOpts
from torchx_sched_k8s.request.pods import Place, make_pod
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.status import AppState
from torchx_specs.overlays import apply_overlay

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

JOB_STATE = JOB_STATES
#: Maps phases of Volcano's tasks to states.
TASK_STATE: dict[str, AppState] = {
    "Pending": AppState.PENDING,
    "Allocated": AppState.PENDING,
    "Pipelined": AppState.PENDING,
    "Binding": AppState.PENDING,
    "Bound": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Releasing": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Unknown": AppState.UNKNOWN,
}

_COLOR = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
BLUE = "\033[34m" if _COLOR else ""
ENDC = "\033[0m" if _COLOR else ""


def role_to_pod(
    name: str,
    role: Role,
    service_account: str | None,
    reserved_millicpu: int = RESERVED_MILLICPU,
    reserved_memmb: int = RESERVED_MEMMB,
    efa_device_count: int | None = None,
) -> V1Pod:
    """Return the pod of one replica, in the form that older releases used for Volcano.

    Args:
        name: Name of the container.
        role: The role, with macros already substituted.
        service_account: Service account of the pod.
        reserved_millicpu: CPU (in thousandths) by which the pod's request is lower than its limit.
        reserved_memmb: Memory (in MB) by which the pod's request is lower than its limit.
        efa_device_count: Number of EFA devices; None for the number in the role's resource.
    """
    opts = KubernetesOpts(
        namespace="default",
        service_account=service_account,
        reserved_millicpu=reserved_millicpu,
        reserved_memmb=reserved_memmb,
        efa_device_count=efa_device_count,
    )
    place = Place("", opts.namespace, {}, {}, "", replica=0)
    pod: V1Pod = to_model(make_pod(role, name, place, opts, plain=True), "V1Pod")
    return pod


def app_to_resource(
    app: AppDef,
    queue: str,
    service_account: str | None,
    priority_class: str | None = None,
    reserved_millicpu: int = RESERVED_MILLICPU,
    reserved_memmb: int = RESERVED_MEMMB,
    efa_device_count: int | None = None,
) -> dict[str, Any]:
    """Return the Volcano Job of an app, as plain data."""
    opts = KubernetesOpts(
        namespace="default",
        queue=queue,
        service_account=service_account,
        priority_class=priority_class,
        reserved_millicpu=reserved_millicpu,
        reserved_memmb=reserved_memmb,
        efa_device_count=efa_device_count,
    )
    return VOLCANO.make(app, opts)


def sanitize_for_serialization(obj: object) -> object:
    """Convert objects of the kubernetes library, also inside of lists and dicts, to plain data."""
    from kubernetes.client import ApiClient, Configuration

    client: Any = ApiClient(Configuration())
    plain: object = client.sanitize_for_serialization(obj)
    return plain


def prefix_container_name(container_name: str, role_name: str, replica_id: int) -> str:
    """Return the prefix for a container's log lines; empty for the role's own container."""
    if container_name == f"{role_name}-{replica_id}":
        return ""
    return f"{BLUE}{container_name}{ENDC} "


def _apply_pod_overlay(pod: V1Pod, overlay: Mapping[str, Any]) -> None:
    """Apply an overlay to a pod in place; the overlay uses the API's field names (camelCase)."""
    data: Any = sanitize_for_serialization(pod)
    apply_overlay(data, overlay)
    merged: V1Pod = to_model(data, "V1Pod")
    pod.spec, pod.metadata = merged.spec, merged.metadata


def to_model(data: Mapping[str, Any], kind: str) -> Any:
    """Convert plain data to an object of the kubernetes library.

    Args:
        data: The plain data.
        kind: Name of the library's class, such as ``V1Pod``.
    """
    from kubernetes.client import ApiClient, Configuration

    client: Any = ApiClient(Configuration())
    text = json.dumps(data)
    try:
        return client.deserialize(text, kind, "application/json")
    except TypeError:  # the library before release 36 accepts only a response object

        class _Response:
            data = text

        return client.deserialize(_Response(), kind)
