"""Overlays: fields of a cluster's objects that roles and apps do not have."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.request.pods import marked
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.templates import is_template, macros
from torchx_specs.overlays import apply_overlay, get_overlay

NAMESPACE = "kubernetes"
#: Of a role: its pods.
POD = "V1Pod"
#: Of a role: its Job. Of an app: each Job, or Volcano's.
JOB = "V1Job"
#: Of an app: its JobSet.
JOBSET = "JobSet"
_OF_ROLES = (POD, JOB)
_OF_APPS = (JOB, JOBSET)
_KINDS = frozenset({*_OF_ROLES, *_OF_APPS})
#: What :func:`torchx_specs.overlays.set_overlay` notes beside the kinds.
_NOTE = "__torchx_overlays__"

_OBJECT_FIELDS = "apiVersion kind metadata spec"
_METADATA_FIELDS = (
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers"
    " generateName generation labels managedFields name namespace ownerReferences resourceVersion"
    " selfLink uid"
)
_POD_FIELDS = (
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy"
    " enableServiceLinks ephemeralContainers evictionResponders hostAliases hostIPC hostNetwork"
    " hostPID hostUsers hostname hostnameOverride imagePullSecrets initContainers nodeName"
    " nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates"
    " resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates"
    " schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN"
    " shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations"
    " topologySpreadConstraints volumes"
)
_JOB_FIELDS = (
    "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy"
    " manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy scheduling"
    " selector successPolicy suspend template ttlSecondsAfterFinished"
)
#: What replicas are found and started again by.
_OURS_IN_PODS = ("restartPolicy", "hostname", "subdomain")
_OURS_IN_JOBS = ("completionMode", "completions", "manualSelector", "selector", "template")


def overlay_of(target: Role | AppDef, kind: str) -> dict[str, Any]:
    """Returns the overlay of one kind, ``{}`` if there is none.

    All of ``metadata["kubernetes"]`` is taken for one of pods if it names no kind, as older
    programs wrote it.

    Raises:
        RequestError: what is stored is no overlay, cannot be read, or is of no kind that ``target``
            can have
    """
    stored: Any = target.metadata.get(NAMESPACE)
    if not stored:
        return {}
    if isinstance(stored, str):
        stored = document(stored)
    whose = f"role '{target.name}'" if isinstance(target, Role) else f"app '{target.name}'"
    if not isinstance(stored, Mapping):
        what = type(stored).__name__
        raise RequestError(f"{whose}: metadata['{NAMESPACE}'] must be a dict, got {what}")
    kinds = [str(key) for key in stored if key != _NOTE]
    flat = _NOTE not in stored and _KINDS.isdisjoint(kinds)
    if flat and isinstance(target, Role):
        return _overlay(stored, kind) if kind == POD else {}
    _check_kinds(whose, kinds, _OF_ROLES if isinstance(target, Role) else _OF_APPS)
    return _overlay(stored, kind) if kind in kinds else {}


def document(source: str) -> dict[str, Any]:
    """Returns what a file holds.

    Args:
        source: path or URI of JSON or YAML

    Raises:
        RequestError: it cannot be read, or holds no mapping
    """
    return get_overlay(Role("", "", metadata={NAMESPACE: {"file": source}}), NAMESPACE, "file")


def _overlay(stored: Any, kind: str) -> dict[str, Any]:
    return get_overlay(Role("", "", metadata={NAMESPACE: stored}), NAMESPACE, kind)


def _check_kinds(whose: str, kinds: list[str], known: tuple[str, ...]) -> None:
    for kind in kinds:
        if kind in known:
            continue
        if kind in _KINDS:
            hint = f" set it on {'the AppDef' if kind in _OF_APPS else 'a Role'}"
        else:
            hint = nearest(kind, known)
        raise RequestError(
            f"{whose} has no overlay of kind '{kind}';{hint} kinds: {', '.join(known)}"
        )


def substituted(overlay: Any, values: macros.Values) -> Any:
    """Returns an overlay with the macros substituted."""
    if isinstance(overlay, str):
        return marked(values.substitute(overlay)) if is_template(overlay) else overlay
    if isinstance(overlay, Mapping):
        return {key: substituted(value, values) for key, value in overlay.items()}
    if isinstance(overlay, (list, tuple)):
        return type(overlay)(substituted(value, values) for value in overlay)
    return overlay


def overlay_pod(
    pod: dict[str, Any], overlay: Mapping[str, Any], *, known_only: bool, fixed: bool
) -> None:
    """Lays an overlay over a pod in place; the labels by which it is found stay.

    Args:
        pod: metadata and spec
        overlay: as :func:`overlay_of` returned it
        known_only: refuse fields that this version does not know
        fixed: refuse changes of what replicas are found and started again by

    Raises:
        RequestError: a field that is unknown or must not be changed, or of another type
    """
    _lay(
        pod,
        overlay,
        kind=POD,
        spec_fields=_POD_FIELDS if known_only else "",
        fixed=_OURS_IN_PODS if fixed else (),
    )


def overlay_job(job: dict[str, Any], overlay: Mapping[str, Any], *, known_only: bool) -> None:
    """Lays an overlay over a ``batch/v1`` Job in place.

    Raises:
        RequestError: a field that is unknown or must not be changed, or of another type
    """
    fields = _JOB_FIELDS if known_only else ""
    _lay(job, overlay, kind=JOB, spec_fields=fields, fixed=_OURS_IN_JOBS)


def overlay_object(
    resource: dict[str, Any], overlay: Mapping[str, Any], kind: str, *, known_only: bool
) -> None:
    """Lays an overlay over an object whose API has schemas of its own in place."""
    _lay(resource, overlay, kind=kind, spec_fields="", fixed=(), known_only=known_only)


def _lay(
    base: dict[str, Any],
    overlay: Mapping[str, Any],
    *,
    kind: str,
    spec_fields: str,
    fixed: tuple[str, ...],
    known_only: bool | None = None,
) -> None:
    metadata = base["metadata"]
    ours = {field: copy.copy(metadata.get(field)) for field in ("name", "namespace")}
    labels = dict(metadata.get("labels") or {})
    before = {field: copy.deepcopy(base["spec"].get(field)) for field in fixed}
    try:
        apply_overlay(base, overlay)
    except RequestError as e:
        raise RequestError(f"overlay {kind}: {e}") from e
    checked = bool(spec_fields) if known_only is None else known_only
    parts = {"": _OBJECT_FIELDS, "metadata": _METADATA_FIELDS, "spec": spec_fields}
    for where, fields in parts.items():
        part = base.get(where) if where else base
        if not isinstance(part, dict):
            raise RequestError(f"overlay {kind}: `{where}` is no dict")
        if checked and fields:
            _check_known(kind, where, part, fields)
    if kind == POD:
        for field in ("apiVersion", "kind"):
            base.pop(field, None)
    for field, value in ours.items():
        base["metadata"].pop(field, None)
        if value is not None:
            base["metadata"][field] = value
    base["metadata"]["labels"] = {**(base["metadata"].get("labels") or {}), **labels}
    changed = [field for field in fixed if base["spec"].get(field) != before[field]]
    if changed:
        names = ", ".join(f"`spec.{field}`" for field in changed)
        hint = " (the pods' fields belong in V1Pod)" if "template" in changed else ""
        raise RequestError(f"overlay {kind}: {names} cannot be changed, TorchX sets it{hint}")


def _check_known(kind: str, where: str, part: Mapping[str, Any], fields: str) -> None:
    known = fields.split()
    for field in part:
        if field in known:
            continue
        path = f"{where}.{field}" if where else field
        hint = nearest(str(field), known)
        if not where and field in _POD_FIELDS.split():
            hint = f" did you mean 'spec.{field}'?"
        raise RequestError(
            f"overlay {kind}: unknown field `{path}`;{hint}"
            " validate_spec=False leaves fields to the cluster"
        )
