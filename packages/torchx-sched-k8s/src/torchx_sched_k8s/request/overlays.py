"""Apply overlays, which set fields of Kubernetes objects that an AppDef cannot express."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_kit.role_templates import RoleTemplate
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.pods import (
    ENV_REPLICA_ID,
    REPLICA_REFERENCE,
    Place,
    index_variable,
    make_pod,
    secret_variable,
)
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros, substitute_nested
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

#: The fields of a pod in which nodes expand environment variables
#: (https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath-expanded-environment).
_EXPANDED = re.compile(
    r"spec\.(?:initContainers|containers)\[\d+\]"
    r"\.(?:command\[|args\[|env\[\d+\]\.value\Z|volumeMounts\[\d+\]\.subPathExpr\Z)"
)


def overlay_of(target: Role | AppDef, kind: str, app_id: str) -> dict[str, Any]:
    """Return the overlay of one kind with its macros substituted, or ``{}`` if there is none.

    ``${replica_id}`` becomes a reference to the variable with the replica's index. If a role's
    ``metadata["kubernetes"]`` contains no kind, the whole dict is an overlay of kind ``V1Pod``: the
    form that older releases required.

    Args:
        target: The role or app.
        kind: The kind of overlay.
        app_id: Name of the app in the cluster.

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
    if isinstance(target, Role) and _MARKER not in stored and _KINDS.isdisjoint(kinds):
        # do not call get_overlay(): it takes the keys of several dicts for kinds, but this function
        # knows all kinds, and none of the keys is one
        if kind == POD:
            warn_of_flat_overlay(NAMESPACE, POD, stored)
        overlay = dict(stored) if kind == POD else {}
    else:
        _check_kinds(whose, kinds, _ROLE_KINDS if isinstance(target, Role) else _APP_KINDS)
        overlay = _overlay(stored, kind) if kind in kinds else {}
    values = macros.Values("", app_id, REPLICA_REFERENCE, ENV_RANK0_HOST)
    found: dict[str, Any] = substitute_nested(overlay, values.to_dict())
    return found


def read_document(source: str) -> dict[str, Any]:
    """Return the content of a file of JSON or YAML.

    Args:
        source: Path or URI of the file.

    Raises:
        RequestError: The file cannot be read, or does not contain a mapping.
    """
    return _overlay({"file": source}, "file")


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


def pod_template(
    role: Role, container: str, place: Place, opts: KubernetesOpts, *, plain: bool = False
) -> dict[str, Any]:
    """Return the template of a role's pods, with the role's overlay.

    A container's variable in the overlay with the value ``${secret:NAME}`` becomes a
    ``secretKeyRef``.

    Args:
        role: The role.
        container: Name of the container.
        place: The labels and host names of the pods.
        opts: The scheduler's options.
        plain: Whether to make pods in the form for Volcano, see
            :func:`~torchx_sched_k8s.request.pods.make_pod`. Volcano finds and restarts replicas by
            other fields, so an overlay may change all fields.

    Raises:
        RequestError: The overlay is not valid.
    """
    pod = make_pod(RoleTemplate(role).render(place.values()), container, place, opts, plain=plain)
    if opts.priority_class and not plain:
        pod["spec"]["priorityClassName"] = opts.priority_class
    overlay = overlay_of(role, POD, place.app_id)
    if not overlay:
        return pod
    overlay = _with_container(overlay, container, role.num_replicas)
    fixed = () if plain else _FIXED_IN_PODS
    overlay_object(pod, overlay, POD, opts, spec_fields=_POD_FIELDS, fixed=fixed)
    for field in ("apiVersion", "kind"):
        pod.pop(field, None)
    spec = pod["spec"]
    for one in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        variables = one.get("env") or ()
        for variable in variables:
            value = variable.get("value") if isinstance(variable, dict) else None
            found = isinstance(value, str) and secret_variable(str(variable.get("name")), value)
            if found:
                del variable["value"]
                variable.update(found)
        names = [variable.get("name") for variable in variables]
        if any(_references(one)) and ENV_REPLICA_ID not in names:
            # a value can refer only to earlier variables, so this variable must be the first
            one["env"] = [index_variable(place.index_path), *variables]
    for where, text in _references(pod):
        if not _EXPANDED.match(where):
            raise RequestError(
                f"overlay {POD}: `{where}` is {text!r}, but all replicas of a role have one"
                " template; use ${replica_id} in command, args, env or `volumeMounts[].subPathExpr`"
                " (a folder of its own below one volume)"
            )
    return pod


def _references(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each string that refers to the variable with the replica's index.

    The reference has the form ``${replica_id}`` in the yielded texts.
    """
    if isinstance(value, str) and REPLICA_REFERENCE in value:
        yield where, value.replace(REPLICA_REFERENCE, macros.replica_id)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _references(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _references(item, f"{where}[{i}]")


def _with_container(overlay: dict[str, Any], container: str, replicas: int) -> dict[str, Any]:
    """Return an overlay whose items for the only replica have the container's name.

    In overlays for older releases, the container of a replica is ``<role>-<replica>``. With this
    name, ``JOIN`` would add a second container, which has no image.

    Args:
        overlay: The overlay of the role's pods.
        container: Name of the role's container.
        replicas: Number of the role's replicas.

    Raises:
        RequestError: An item is for one of several replicas, or for a replica that does not exist.
    """
    spec, key = overlay.get("spec"), JOIN("containers", on="name")
    if not isinstance(spec, Mapping) or not isinstance(spec.get(key), (list, tuple)):
        return overlay
    items = []
    for item in spec[key]:
        name = str(item.get("name")) if isinstance(item, Mapping) else ""
        head, _, index = name.rpartition("-")
        if head == container and index.isdigit():
            if replicas > 1 or index != "0":
                have = f"its {replicas} replicas share" if replicas > 1 else "its only replica has"
                raise RequestError(
                    f"overlay {POD}: there is no container '{name}': {have} the container"
                    f" '{container}'; use this name"
                )
            item = {**item, "name": container}
        items.append(item)
    return {**overlay, "spec": {**spec, key: items}}


def overlay_job(
    job: dict[str, Any], app: AppDef, role: Role, app_id: str, opts: KubernetesOpts
) -> None:
    """Apply the overlays of an app and then of a role to the role's ``batch/v1`` Job in place.

    Raises:
        RequestError: A field is unknown, must not be changed, or has a wrong type.
    """
    for target in (app, role):
        overlay = overlay_of(target, JOB, app_id)
        overlay_object(job, overlay, JOB, opts, spec_fields=_JOB_FIELDS, fixed=_FIXED_IN_JOBS)


def overlay_object(
    resource: dict[str, Any],
    overlay: Mapping[str, Any],
    kind: str,
    opts: KubernetesOpts,
    *,
    spec_fields: str = "",
    fixed: tuple[str, ...] = (),
) -> None:
    """Apply an overlay to an object in place; the object keeps its name and its labels.

    Args:
        resource: The object.
        overlay: The overlay, as :func:`overlay_of` returns it.
        kind: The kind of overlay.
        opts: The scheduler's options, which may permit fields that this version does not know.
        spec_fields: The known fields of the spec; empty if only the cluster checks them.
        fixed: Fields of the spec that must not change, because TorchX needs them to find and
            restart replicas.

    Raises:
        RequestError: A field is unknown, must not be changed, or has a wrong type.
    """
    for where, text in _references(overlay) if kind != POD else ():
        raise RequestError(
            f"overlay {kind}: `{where}` is {text!r}, but a {kind} is one object for all replicas;"
            f" use ${{replica_id}} in the overlay {POD}"
        )
    metadata = resource["metadata"]
    names = {field: metadata[field] for field in ("name", "namespace") if field in metadata}
    labels = dict(metadata["labels"])
    before = {field: copy.deepcopy(resource["spec"].get(field)) for field in fixed}
    try:
        apply_overlay(resource, overlay)
    except RequestError as e:
        raise RequestError(f"overlay {kind}: {e}") from e
    parts = {"": _OBJECT_FIELDS, "metadata": _METADATA_FIELDS, "spec": spec_fields}
    for where, fields in parts.items():
        part = resource.get(where) if where else resource
        if not isinstance(part, dict):
            raise RequestError(
                f"overlay {kind}: `{where}` must be a dict, got {type(part).__name__}"
            )
        if opts.validate_spec is not False and fields:
            _check_known(kind, where, part, fields)
    overlaid = {k: v for k, v in resource["metadata"].items() if k not in ("name", "namespace")}
    labels = {**(overlaid.get("labels") or {}), **labels}
    resource["metadata"] = {**names, **overlaid, "labels": labels}
    changed = [field for field in fixed if resource["spec"].get(field) != before[field]]
    if changed:
        fields = ", ".join(f"`spec.{field}`" for field in changed)
        hint = " (set fields of pods in the overlay V1Pod)" if "template" in changed else ""
        raise RequestError(f"overlay {kind}: {fields} cannot be changed: TorchX sets it{hint}")


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
