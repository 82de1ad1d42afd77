"""Apply overlays, which set fields of Kubernetes objects that an AppDef cannot express."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_sched_k8s.request.pods import (
    ENV_REPLICA_ID,
    REPLICA_MARK,
    index_variable,
    marked,
    secret_variable,
)
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.templates import is_template, macros
from torchx_specs.overlays import JOIN, apply_overlay, get_overlay, warn_of_flat_overlay

NAMESPACE = "kubernetes"
#: Kind of overlay for a role's pods.
POD = "V1Pod"
#: Kind of overlay for Jobs. On a role, it changes the role's Job; on an app, it changes each Job,
#: or the Volcano Job.
JOB = "V1Job"
#: Kind of overlay for an app's JobSet.
JOBSET_KIND = "JobSet"
_ROLE_KINDS = (POD, JOB)
_APP_KINDS = (JOB, JOBSET_KIND)
_KINDS = frozenset({*_ROLE_KINDS, *_APP_KINDS})
#: A key that :func:`torchx_specs.overlays.set_overlay` adds beside the kinds; it is not a kind.
_MARKER = "__torchx_overlays__"

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
#: Fields that overlays must not change: TorchX needs them to find and restart replicas.
_FIXED_IN_PODS = ("restartPolicy", "hostname", "subdomain")
_FIXED_IN_JOBS = ("completionMode", "completions", "manualSelector", "selector", "template")


def overlay_of(target: Role | AppDef, kind: str) -> dict[str, Any]:
    """Return the overlay of one kind, or ``{}`` if there is none.

    If a role's ``metadata["kubernetes"]`` contains no kind, the whole dict is an overlay of kind
    ``V1Pod``: the form that older releases required.

    Args:
        target: The role or app.
        kind: The kind of overlay.

    Raises:
        RequestError: The metadata is not a dict, its file cannot be read, or it contains a kind
            that ``target`` cannot have.
    """
    stored: Any = target.metadata.get(NAMESPACE)
    if not stored:
        return {}
    if isinstance(stored, str):
        stored = read_document(stored)
    whose = f"role '{target.name}'" if isinstance(target, Role) else f"app '{target.name}'"
    if not isinstance(stored, Mapping):
        what = type(stored).__name__
        raise RequestError(f"{whose}: metadata['{NAMESPACE}'] must be a dict, got {what}")
    kinds = [str(key) for key in stored if key != _MARKER]
    flat = _MARKER not in stored and _KINDS.isdisjoint(kinds)
    if flat and isinstance(target, Role):
        if kind != POD:
            return {}
        # do not call get_overlay(): it takes the keys of several dicts for kinds, but this function
        # knows all kinds, and none of the keys is one
        warn_of_flat_overlay(NAMESPACE, POD, stored)
        return copy.deepcopy(dict(stored))
    _check_kinds(whose, kinds, _ROLE_KINDS if isinstance(target, Role) else _APP_KINDS)
    return _overlay(stored, kind) if kind in kinds else {}


def read_document(source: str) -> dict[str, Any]:
    """Return the content of a file of JSON or YAML.

    Args:
        source: Path or URI of the file.

    Raises:
        RequestError: The file cannot be read, or does not contain a mapping.
    """
    return get_overlay(Role("", "", metadata={NAMESPACE: {"file": source}}), NAMESPACE, "file")


def _overlay(stored: Any, kind: str) -> dict[str, Any]:
    return get_overlay(Role("", "", metadata={NAMESPACE: stored}), NAMESPACE, kind)


def _check_kinds(whose: str, kinds: list[str], known: tuple[str, ...]) -> None:
    for kind in kinds:
        if kind in known:
            continue
        if kind in _KINDS:
            hint = f" set it on {'the AppDef' if kind in _APP_KINDS else 'a Role'}"
        else:
            hint = nearest(kind, known)
        raise RequestError(
            f"{whose} has no overlay of kind '{kind}';{hint} kinds: {', '.join(known)}"
        )


def substituted(overlay: Any, values: macros.Values) -> Any:
    """Return an overlay with its macros substituted.

    If all replicas of a role share one template, ``${replica_id}`` becomes a mark, which
    :func:`set_replica_ids` replaces.
    """
    if isinstance(overlay, str):
        return values.substitute(overlay) if is_template(overlay) else overlay
    if isinstance(overlay, Mapping):
        return {key: substituted(value, values) for key, value in overlay.items()}
    if isinstance(overlay, (list, tuple)):
        return type(overlay)(substituted(value, values) for value in overlay)
    return overlay


def set_replica_ids(pod: dict[str, Any], index_path: str) -> None:
    """Replace the marks that stand for ``${replica_id}`` in a pod template, in place.

    A node expands environment variables in ``command``, ``args``, ``env`` and ``subPathExpr``
    (https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath-expanded-environment). In
    these fields a mark becomes the variable that holds the replica's index. In any other field all
    replicas would have the same text.

    Args:
        pod: Metadata and spec of the pods, after all overlays.
        index_path: Path of the pod's field that holds the replica's index.

    Raises:
        RequestError: A mark is in another field.
    """
    for container in _containers(pod):
        before = copy.deepcopy(container)
        for key in ("command", "args"):
            if container.get(key):
                container[key] = [marked(str(text)) for text in container[key]]
        for key, field in (("env", "value"), ("volumeMounts", "subPathExpr")):
            for item in container.get(key) or ():
                if isinstance(item.get(field), str):
                    item[field] = marked(item[field])
        names = [one.get("name") for one in container.get("env") or ()]
        if container != before and ENV_REPLICA_ID not in names:
            # a value can refer only to earlier variables, so this variable must be the first
            container["env"] = [index_variable(index_path), *(container.get("env") or ())]
    for where, text in _marks(pod, ""):
        raise RequestError(
            f"overlay {POD}: `{where}` is {text.replace(REPLICA_MARK, '${replica_id}')!r}, but all"
            " replicas of a role have one template; use ${replica_id} in command, args, env or"
            " `volumeMounts[].subPathExpr` (a folder of its own below one volume), or"
            " job_api=volcano"
        )


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _marks(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each string with a mark."""
    if isinstance(value, str) and REPLICA_MARK in value:
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _marks(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _marks(item, f"{where}[{i}]")


def with_container(
    overlay: dict[str, Any], name: str, container: str, replica: int | None, replicas: int
) -> dict[str, Any]:
    """Return an overlay whose items for the role's container have the container's name.

    In overlays for older releases, the container of a replica is ``<role>-<replica>``. With another
    name, ``JOIN`` would add a second container, which has no image.

    Args:
        overlay: The overlay of the role's pods, with macros substituted.
        name: Name of the role in the names of objects.
        container: Name of the role's container.
        replica: Index of the replica; None if all replicas share one template.
        replicas: Number of the role's replicas.

    Raises:
        RequestError: An item is for one of several replicas that share one template, or for a
            replica that does not exist.
    """
    spec, key = overlay.get("spec"), JOIN("containers", on="name")
    if not isinstance(spec, Mapping) or not isinstance(spec.get(key), (list, tuple)):
        return overlay
    items = []
    for item in spec[key]:
        given = str(item.get("name")) if isinstance(item, Mapping) else ""
        head, _, index = given.rpartition("-")
        is_replica = head == name and index.isdigit()
        if is_replica and (int(index) >= replicas or (replica is None and replicas > 1)):
            have = f"its {replicas} replicas share" if replicas > 1 else "its only replica has"
            raise RequestError(
                f"overlay {POD}: there is no container '{given}': {have} the container"
                f" '{container}'; use this name, or job_api=volcano for one of several replicas"
            )
        if is_replica and int(index) != (replica or 0):
            continue
        items.append({**item, "name": container} if is_replica or given == name else item)
    return {**overlay, "spec": {**spec, key: items}}


def overlay_pod(
    pod: dict[str, Any], overlay: Mapping[str, Any], *, known_only: bool, fixed: bool
) -> None:
    """Apply an overlay to a pod in place; the pod keeps the name and the labels that it has.

    A container's variable with the value ``${secret:NAME}`` becomes a ``secretKeyRef``.

    Args:
        pod: Metadata and spec of the pod.
        overlay: The overlay, as :func:`overlay_of` returns it.
        known_only: Whether to reject fields that this version does not know.
        fixed: Whether to reject changes of fields that TorchX needs to find and restart replicas.

    Raises:
        RequestError: A field is unknown, must not be changed, or has a wrong type.
    """
    _apply(
        pod,
        overlay,
        kind=POD,
        spec_fields=_POD_FIELDS if known_only else "",
        fixed=_FIXED_IN_PODS if fixed else (),
    )
    for container in _containers(pod):
        for variable in container.get("env") or ():
            value = variable.get("value") if isinstance(variable, dict) else None
            found = isinstance(value, str) and secret_variable(str(variable.get("name")), value)
            if found:
                del variable["value"]
                variable.update(found)


def overlay_job(job: dict[str, Any], overlay: Mapping[str, Any], *, known_only: bool) -> None:
    """Apply an overlay to a ``batch/v1`` Job in place.

    Args:
        job: The Job.
        overlay: The overlay, as :func:`overlay_of` returns it.
        known_only: Whether to reject fields that this version does not know.

    Raises:
        RequestError: A field is unknown, must not be changed, or has a wrong type.
    """
    fields = _JOB_FIELDS if known_only else ""
    _apply(job, overlay, kind=JOB, spec_fields=fields, fixed=_FIXED_IN_JOBS)


def overlay_object(
    resource: dict[str, Any], overlay: Mapping[str, Any], kind: str, *, known_only: bool
) -> None:
    """Apply an overlay to an object in place. Only the cluster checks the fields of the spec.

    Args:
        resource: The object.
        overlay: The overlay, as :func:`overlay_of` returns it.
        kind: The kind of overlay, for error messages.
        known_only: Whether to reject unknown fields of the object and its metadata.

    Raises:
        RequestError: A field is unknown or has a wrong type.
    """
    _apply(resource, overlay, kind=kind, spec_fields="", fixed=(), known_only=known_only)


def _apply(
    base: dict[str, Any],
    overlay: Mapping[str, Any],
    *,
    kind: str,
    spec_fields: str,
    fixed: tuple[str, ...],
    known_only: bool | None = None,
) -> None:
    for where, text in _marks(overlay, "") if kind != POD else ():
        raise RequestError(
            f"overlay {kind}: `{where}` is {text.replace(REPLICA_MARK, '${replica_id}')!r}, but a"
            f" {kind} is one object for all replicas; use ${{replica_id}} in the overlay {POD}"
        )
    metadata = base["metadata"]
    kept = {field: copy.copy(metadata.get(field)) for field in ("name", "namespace")}
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
            raise RequestError(
                f"overlay {kind}: `{where}` must be a dict, got {type(part).__name__}"
            )
        if checked and fields:
            _check_known(kind, where, part, fields)
    if kind == POD:
        for field in ("apiVersion", "kind"):
            base.pop(field, None)
    for field, value in kept.items():
        base["metadata"].pop(field, None)
        if value is not None:
            base["metadata"][field] = value
    base["metadata"]["labels"] = {**(base["metadata"].get("labels") or {}), **labels}
    changed = [field for field in fixed if base["spec"].get(field) != before[field]]
    if changed:
        names = ", ".join(f"`spec.{field}`" for field in changed)
        hint = " (set fields of pods in the overlay V1Pod)" if "template" in changed else ""
        raise RequestError(f"overlay {kind}: {names} cannot be changed: TorchX sets it{hint}")


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
            " to leave unknown fields to the cluster, set validate_spec=False"
        )
