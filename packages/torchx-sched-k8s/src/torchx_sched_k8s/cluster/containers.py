"""Annotations of pods, and the role's container and ``min_replicas``, which they identify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_MIN_REPLICAS,
    ANNOTATION_ROLE_NAME,
    annotations_of,
)
from torchx_specs.model.app import Role

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


def main_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container of a pod's role; empty if the pod has no containers.

    A webhook may insert a sidecar before the role's container, so the container is found by the
    name in the pod's annotations. If no container has this name, the first container is returned,
    as for pods of older releases, which lack the annotations.

    Args:
        pod: A pod or a pod template, in the form of the API.
    """
    containers: list[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or [{}]
    annotations = annotations_of(pod)
    for key in (ANNOTATION_CONTAINER, ANNOTATION_DEFAULT_CONTAINER):
        for container in containers:
            if key in annotations and container.get("name") == annotations[key]:
                return container
    return containers[0]
