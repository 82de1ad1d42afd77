"""How an app's objects are found in the API: paths, labels and annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchx_kit.names.limits import LABEL_VALUE, fit_name
from torchx_specs.model.app import AppDef, Role
from torchx_specs.version import __version__

#: Paths of API groups and versions.
BATCH = "/apis/batch/v1"
CORE = "/api/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

LABEL_VERSION = "torchx.pytorch.org/version"
LABEL_APP_NAME = "torchx.pytorch.org/app-name"
LABEL_ROLE_INDEX = "torchx.pytorch.org/role-index"
LABEL_ROLE_NAME = "torchx.pytorch.org/role-name"
LABEL_REPLICA_ID = "torchx.pytorch.org/replica-id"
LABEL_KUBE_APP_NAME = "app.kubernetes.io/name"
LABEL_ORGANIZATION = "app.kubernetes.io/managed-by"
#: The app's unique name, on every object of the app.
LABEL_UNIQUE_NAME = "app.kubernetes.io/instance"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"

ORGANIZATION = "torchx.pytorch.org"

ANNOTATION_ISTIO_SIDECAR = "sidecar.istio.io/inject"
#: Names as in the AppDef. They are annotations too, because label values allow few characters.
ANNOTATION_APP_NAME = "torchx.pytorch.org/app-name"
ANNOTATION_ROLE_NAME = "torchx.pytorch.org/role-name"
#: The role's ``min_replicas``, on its pods.
ANNOTATION_MIN_REPLICAS = "torchx.pytorch.org/min-replicas"
#: JSON of ``AppDef.metadata``.
ANNOTATION_METADATA = "torchx.pytorch.org/metadata"
#: Time of the app's cancellation.
ANNOTATION_CANCELLED = "torchx.pytorch.org/cancelled"
#: Reason for which the supervisor ended the app, or ended a role that had not failed itself.
ANNOTATION_ENDED = "torchx.pytorch.org/ended"
#: JSON list with the names of an array's apps. The first item is the common start of all names; the
#: other items are the rests of the names, in the order of the indexes.
ANNOTATION_NAMES = "torchx.pytorch.org/array-names"
#: Number of the attempt on the pods of later attempts of an app with the option ``requeue``.
ANNOTATION_ATTEMPT = "torchx.pytorch.org/attempt"

#: A pod's index, set by the Job controller.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
#: A pod's index, set by Volcano.
VOLCANO_INDEX = "volcano.sh/task-index"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
#: Annotation of a Job that Kueue may start with fewer pods.
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


def object_path(
    api: str, namespace: str, plural: str, name: str = "", subresource: str = ""
) -> str:
    """Return the path of all objects of a kind in a namespace, or of one object.

    Args:
        api: Path of the API group and version, such as :data:`BATCH`.
        namespace: Namespace of the objects.
        plural: Plural name of the kind, such as ``jobs``.
        name: Name of one object; empty for all objects.
        subresource: Part of that object, such as ``status`` or ``log``.
    """
    path = f"{api}/namespaces/{quote(namespace, safe='')}/{plural}"
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def object_labels(app: AppDef, app_id: str) -> dict[str, str]:
    """Return the labels that all objects of an app have."""
    name = label_value(app.name)
    return {
        LABEL_VERSION: label_value(__version__),
        LABEL_APP_NAME: name,
        LABEL_KUBE_APP_NAME: name,
        LABEL_ORGANIZATION: ORGANIZATION,
        LABEL_UNIQUE_NAME: app_id,
    }


def role_labels(app: AppDef, role_idx: int, role: Role, app_id: str) -> dict[str, str]:
    """Return the labels of the objects of one role."""
    labels = object_labels(app, app_id)
    labels[LABEL_ROLE_INDEX] = str(role_idx)
    labels[LABEL_ROLE_NAME] = label_value(role.name)
    return labels


def pod_labels(
    app: AppDef, role_idx: int, role: Role, replica_id: int, app_id: str
) -> dict[str, str]:
    """Return the labels of the pod of one replica."""
    labels = role_labels(app, role_idx, role, app_id)
    labels[LABEL_REPLICA_ID] = str(replica_id)
    return labels


def label_value(text: str) -> str:
    """Convert a text to a valid label value: shorten it and replace invalid characters."""
    return fit_name(text, LABEL_VALUE) if text else ""


def labels_of(resource: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object; empty if it has none."""
    return (resource.get("metadata") or {}).get("labels") or {}


def annotations_of(resource: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object; empty if it has none."""
    return (resource.get("metadata") or {}).get("annotations") or {}


def json_annotation(resource: Mapping[str, Any], key: str) -> Any:
    """Return the data in an annotation; None if another program changed it, or if there is none."""
    try:
        return json.loads(annotations_of(resource).get(key) or "null")
    except ValueError:
        return None


def selector(**labels: str) -> str:
    """Return a label selector for objects of TorchX.

    Args:
        **labels: Values that the objects' labels must have: ``instance`` (the app's id without its
            namespace), ``role`` (index of the role), ``replica`` (index of the replica).
    """
    keys = {"instance": LABEL_UNIQUE_NAME, "role": LABEL_ROLE_INDEX, "replica": LABEL_REPLICA_ID}
    parts = [f"{keys[name]}={value}" for name, value in labels.items()]
    return ",".join([f"{LABEL_ORGANIZATION}={ORGANIZATION}", *parts])


#: Annotation of a pod with the name of the role's container.
ANNOTATION_CONTAINER = "torchx.pytorch.org/container"
#: Annotation with the name of the container that ``kubectl logs`` and ``kubectl exec`` select
#: (https://kubernetes.io/docs/reference/labels-annotations-taints/). An overlay may change this
#: annotation.
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def pod_annotations(role: Role, container: str) -> dict[str, str]:
    """Return the annotations of a role's pods.

    Args:
        role: The role.
        container: Name of the role's container.
    """
    annotations = {
        ANNOTATION_ROLE_NAME: role.name,
        ANNOTATION_CONTAINER: container,
        ANNOTATION_DEFAULT_CONTAINER: container,
    }
    if role.min_replicas is not None:
        annotations[ANNOTATION_MIN_REPLICAS] = str(role.min_replicas)
    return annotations


def min_replicas_of(pod: Mapping[str, Any]) -> int | None:
    """Return the ``min_replicas`` of a pod's role; None if the pod has no such annotation.

    Args:
        pod: A pod or a pod template, in the form of the API.
    """
    text = annotations_of(pod).get(ANNOTATION_MIN_REPLICAS, "")
    return int(text) if text.isdigit() else None


def main_container(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container of a pod's role; empty if the pod has no containers.

    A webhook may insert a sidecar before the role's container, so the container is found by the
    name in the pod's annotations. If no container has this name, the first container is returned,
    as for pods of older releases, which lack the annotations.

    Args:
        pod: A pod or a pod template, in the form of the API.
    """
    containers: list[dict[str, Any]] = (pod.get("spec") or {}).get("containers") or [{}]
    annotations = annotations_of(pod)
    for key in (ANNOTATION_CONTAINER, ANNOTATION_DEFAULT_CONTAINER):
        for container in containers:
            if key in annotations and container.get("name") == annotations[key]:
                return container
    return containers[0]
