"""Make the objects for ``job_api=batch``: an Indexed Job for each role, and a headless Service.

:func:`job_spec` also makes the Jobs of a JobSet.
"""

from __future__ import annotations

from typing import Any

from torchx_kit.role_templates import RoleTemplate
from torchx_sched_k8s.backends.supervision import find_supervisor, is_restarted, is_supervised
from torchx_sched_k8s.cluster.containers import pod_annotations
from torchx_sched_k8s.cluster.labels import (
    COMPLETION_INDEX,
    LABEL_ORGANIZATION,
    LABEL_QUEUE,
    LABEL_UNIQUE_NAME,
    MIN_PARALLELISM,
    ORGANIZATION,
    object_labels,
    role_labels,
)
from torchx_sched_k8s.cluster.names import app_names
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.metadata import object_metadata
from torchx_sched_k8s.request.overlays import (
    JOB,
    POD,
    overlay_job,
    overlay_of,
    overlay_pod,
    set_replica_ids,
    substituted,
    with_container,
)
from torchx_sched_k8s.request.pods import Place, PodMaker
from torchx_sched_k8s.request.retries import job_retries
from torchx_specs.model.app import AppDef, Role

#: Path of the field that holds a pod's index, in every Kubernetes version with Indexed Jobs.
INDEX_PATH = f"metadata.annotations['{COMPLETION_INDEX}']"


def make_objects(app: AppDef, opts: KubernetesOpts) -> list[dict[str, Any]]:
    """Return an app's Service, its Jobs, and the objects of its supervisor if it has one.

    Args:
        app: The app.
        opts: The scheduler's options.

    Raises:
        RequestError: An overlay is not valid, or a name is too long and ``validate_spec`` is set.
    """
    supervisor = find_supervisor() if is_supervised(app, opts) else None
    restarted = is_restarted(app, opts)
    most = max(role.num_replicas for role in app.roles)
    names = app_names(
        app.name,
        [role.name for role in app.roles],
        len(f"-{most - 1}"),
        shorten=not opts.validate_spec,
    )
    service = names.app_id
    rank0 = f"{names.app_id}-{names.roles[app.roles[0].name]}-0.{service}"
    service_object = make_service(app, names.app_id, opts)
    jobs = []
    for role_idx, role in enumerate(app.roles):
        labels = role_labels(app, role_idx, role, names.app_id)
        place = Place(
            names.app_id,
            opts.namespace,
            labels,
            pod_annotations(role, names.roles[role.name]),
            rank0,
            index_path=INDEX_PATH,
            subdomain=service,
        )
        job: dict[str, Any] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": object_metadata(
                app, f"{names.app_id}-{names.roles[role.name]}", place.labels, opts, role.name
            ),
            "spec": job_spec(
                role,
                names.roles[role.name],
                place,
                opts,
                together=restarted,
                gang=restarted,
            ),
        }
        if opts.queue:
            suspend_for_kueue(job, role, opts.queue)
        if opts.ttl_seconds is not None and supervisor is None:
            job["spec"]["ttlSecondsAfterFinished"] = opts.ttl_seconds
        for target in (app, role):
            overlay = substituted(overlay_of(target, JOB), place.values())
            overlay_job(job, overlay, known_only=opts.known_only)
        jobs.append(job)
    if supervisor is None:
        return [service_object, *jobs]
    return supervisor.supervise(app, names.app_id, service_object, jobs, opts)


def make_service(app: AppDef, app_id: str, opts: KubernetesOpts) -> dict[str, Any]:
    """Return the Service that gives an app's pods host names, even before the pods are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_metadata(app, app_id, object_labels(app, app_id), opts),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_ORGANIZATION: ORGANIZATION, LABEL_UNIQUE_NAME: app_id},
        },
    }


def job_spec(
    role: Role,
    container: str,
    place: Place,
    opts: KubernetesOpts,
    *,
    together: bool,
    gang: bool = False,
) -> dict[str, Any]:
    """Return the spec of an Indexed Job whose pods are a role's replicas.

    Args:
        role: The role.
        container: Name of the container.
        place: The labels and host names of the pods.
        opts: The scheduler's options.
        together: Whether a supervisor or a JobSet restarts the Job as a whole.
        gang: Whether a disruption of one pod must fail the Job, because a supervisor or a JobSet
            restarts all pods.

    Raises:
        RequestError: The overlay of the pods is not valid.
    """
    pod = PodMaker(RoleTemplate(role), opts).make(container, place)
    if opts.priority_class:
        pod["spec"]["priorityClassName"] = opts.priority_class
    overlay = substituted(overlay_of(role, POD), place.values())
    overlay = with_container(overlay, container, container, None, role.num_replicas)
    overlay_pod(pod, overlay, known_only=opts.known_only, fixed=True)
    if overlay:
        set_replica_ids(pod, place.index_path)
    return {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        **job_retries(role, opts, together=together, gang=gang),
        "template": pod,
    }


def suspend_for_kueue(job: dict[str, Any], role: Role | None, queue: str) -> None:
    """Suspend a Job or JobSet in place and label it with a Kueue queue; Kueue resumes it.

    Args:
        job: The Job or JobSet.
        role: The Job's role, whose ``min_replicas`` Kueue may start first; None for a JobSet.
        queue: Name of the queue.
    """
    job["metadata"]["labels"][LABEL_QUEUE] = queue
    job["spec"]["suspend"] = True
    if role is not None and role.min_replicas and role.min_replicas < role.num_replicas:
        job["metadata"]["annotations"][MIN_PARALLELISM] = str(role.min_replicas)
