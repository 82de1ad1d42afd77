"""The request of a dry run: the Kubernetes objects to create."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.text.yaml_text import yaml_text
from torchx_sched_k8s.cluster.labels import LABEL_UNIQUE_NAME, labels_of
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.retries import warnings_of_retries
from torchx_sched_k8s.supervisor import masked_manifests
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef
from torchx_specs.redaction import masked

#: The largest object that etcd stores by default, in bytes.
LARGEST_OBJECT = 1536 * 1024


@dataclass
class KubernetesJob:
    """The objects of an app.

    Attributes:
        images_to_push: Always empty; kept for compatibility.
        resource: The object, or a ``v1`` List of several objects.
        namespace: Namespace of the objects.
    """

    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    namespace: str = "default"

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects, without the ``v1`` List that may contain them."""
        if self.resource.get("kind") == "List":
            return list(self.resource["items"])
        return [self.resource]

    @property
    def name(self) -> str:
        """Name of the app in the cluster."""
        first = self.objects[0]
        return labels_of(first).get(LABEL_UNIQUE_NAME) or str(first["metadata"]["name"])

    def __str__(self) -> str:
        return format_request(self)

    __repr__ = __str__


def make_request(app: AppDef, opts: KubernetesOpts) -> KubernetesJob:
    """Return the objects of an app, without contacting a cluster.

    Args:
        app: The app.
        opts: The scheduler's options.

    Raises:
        RequestError: An overlay is invalid, or an object is too large.
    """
    for warning in warnings_of_retries(app, opts, opts.api):
        logging.getLogger(__name__).warning("%s", warning)
    namespace = opts.namespace
    if opts.api == "volcano":
        from torchx_sched_k8s.request.volcano import make_job

        return KubernetesJob({}, make_job(app, opts), namespace)
    if opts.api == "jobset":
        from torchx_sched_k8s.request.jobset import make_jobset

        job = KubernetesJob({}, make_jobset(app, opts), namespace)
    else:
        from torchx_sched_k8s.request.batch import make_objects

        items = make_objects(app, opts)
        job = KubernetesJob({}, {"apiVersion": "v1", "kind": "List", "items": items}, namespace)
    check_size(job)
    return job


def check_size(job: KubernetesJob) -> None:
    """Check that the cluster can store each object.

    Args:
        job: The objects.

    Raises:
        RequestError: An object is too large, or contains a value that JSON cannot represent.
    """
    for resource in job.objects:
        what = f"{resource.get('kind')} {resource['metadata']['name']}"
        try:
            size = len(json.dumps(resource, ensure_ascii=False).encode("utf-8"))
        except (TypeError, ValueError) as e:
            raise RequestError(f"{what}: its overlay holds a value that JSON cannot: {e}") from e
        if size > LARGEST_OBJECT:
            raise RequestError(
                f"{what} has {size / 2**20:.1f} MB, and a cluster stores at most"
                f" {LARGEST_OBJECT / 2**20:.1f} MB in one object;"
                " pass large arguments in a file, a workspace or a volume"
            )


def format_request(job: KubernetesJob) -> str:
    """Return a request as YAML for kubectl; values that look like secrets are masked."""
    return "---\n".join(yaml_text(_masked(resource)) for resource in job.objects)


def _masked(resource: Any) -> Any:
    if resource.get("kind") == "ConfigMap" and isinstance(resource.get("data"), Mapping):
        return {**resource, "data": masked_manifests(resource["data"], masked)}
    return masked(resource)
