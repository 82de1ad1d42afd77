"""The metadata of an app's objects: names, labels and annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_METADATA,
    ANNOTATION_ROLE_NAME,
)
from torchx_sched_k8s.options import KubernetesOpts
from torchx_specs.model.app import AppDef


def object_metadata(
    app: AppDef,
    name: str,
    labels: Mapping[str, str],
    opts: KubernetesOpts,
    role_name: str | None = None,
) -> dict[str, Any]:
    """Return the metadata of an object of an app.

    Args:
        app: The app.
        name: Name of the object.
        labels: Labels, in addition to the option ``labels``.
        opts: The scheduler's options.
        role_name: The role that the object belongs to; None for the whole app.
    """
    annotations = dict(opts.annotations or {})
    annotations[ANNOTATION_APP_NAME] = app.name
    if role_name is not None:
        annotations[ANNOTATION_ROLE_NAME] = role_name
    texts = {key: value for key, value in app.metadata.items() if isinstance(value, str)}
    if texts:
        annotations[ANNOTATION_METADATA] = json.dumps(texts)
    return {
        "name": name,
        "namespace": opts.namespace,
        "labels": {**(opts.labels or {}), **labels},
        "annotations": annotations,
    }
