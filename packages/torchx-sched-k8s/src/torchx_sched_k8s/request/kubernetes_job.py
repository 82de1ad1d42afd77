"""The native request: which objects to create; made offline, without a client library."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.yaml_text import yaml_text
from torchx_sched_k8s.cluster.labels import LABEL_UNIQUE_NAME, labels_of
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.checks import check
from torchx_sched_k8s.request.retries import warnings_of_retries
from torchx_sched_k8s.supervisor import masked_manifests
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef
from torchx_specs.redaction import MASK, is_secret, masked_text

#: What etcd stores as one object, in bytes, unless its operator says otherwise.
LARGEST = 1536 * 1024


@dataclass
class KubernetesJob:
    """What is created for an app.

    Args:
        images_to_push: kept for older code; a workspace notes in its role what is to be pushed
        resource: the object, or a ``v1`` List of several
        namespace: of the cluster
    """

    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    namespace: str = "default"

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects, one by one."""
        if self.resource.get("kind") == "List":
            return list(self.resource["items"])
        return [self.resource]

    @property
    def name(self) -> str:
        """What the app is called in the cluster."""
        first = self.objects[0]
        return labels_of(first).get(LABEL_UNIQUE_NAME) or str(first["metadata"]["name"])

    def __str__(self) -> str:
        return format_request(self)

    __repr__ = __str__


def make_request(app: AppDef, opts: KubernetesOpts) -> KubernetesJob:
    """Returns which objects an app needs; contacts nobody.

    Raises:
        RequestError: names everything that no cluster could do
    """
    check(app, opts)
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
    """Checks that the cluster can store each object.

    Raises:
        RequestError: one is too large, or holds what JSON cannot
    """
    for resource in job.objects:
        what = f"{resource.get('kind')} {resource['metadata']['name']}"
        try:
            size = len(json.dumps(resource, ensure_ascii=False).encode("utf-8"))
        except (TypeError, ValueError) as e:
            raise RequestError(f"{what}: its overlay holds what JSON cannot: {e}") from e
        if size > LARGEST:
            raise RequestError(
                f"{what} takes {size / 2**20:.1f} MB, and a cluster stores {LARGEST / 2**20:.1f} MB"
                " as one object: pass large arguments in a file, a workspace or a volume"
            )


def format_request(job: KubernetesJob) -> str:
    """Returns a request as YAML that kubectl takes, with values masked that look like secrets."""
    return "---\n".join(yaml_text(_masked(resource)) for resource in job.objects)


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get("kind") == "ConfigMap" and isinstance(value.get("data"), Mapping):
            return {**value, "data": masked_manifests(value["data"], _masked)}
        name = value.get("name")
        if isinstance(name, str) and isinstance(value.get("value"), str) and is_secret(name):
            return {**value, "value": MASK}
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(item) for item in value]
    return masked_text(value) if isinstance(value, str) else value
