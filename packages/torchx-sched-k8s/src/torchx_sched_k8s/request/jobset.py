"""Make the object for ``job_api=jobset``: a JobSet, which starts and ends all roles together."""

from __future__ import annotations

import copy
from typing import Any

from torchx_sched_k8s.cluster.containers import pod_annotations
from torchx_sched_k8s.cluster.labels import ANNOTATION_ROLE_NAME, object_labels, role_labels
from torchx_sched_k8s.cluster.names import app_names
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.batch import INDEX_PATH, job_spec, suspend_for_kueue
from torchx_sched_k8s.request.metadata import object_metadata
from torchx_sched_k8s.request.overlays import (
    JOB,
    JOBSET,
    overlay_job,
    overlay_object,
    overlay_of,
    substituted,
)
from torchx_sched_k8s.request.pods import Place
from torchx_sched_k8s.request.retries import is_gang, jobset_retries
from torchx_specs.model.app import AppDef

API_VERSION = "jobset.x-k8s.io/v1alpha2"
#: The end of a pod's name in a JobSet: index of the Job, index of the pod, random text.
_TAIL = "-0-%d-xxxxx"


def make_jobset(app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
    """Return the JobSet of an app.

    Args:
        app: The app.
        opts: The scheduler's options.

    Raises:
        RequestError: An overlay is not valid, or a name is too long and ``validate_spec`` is set.
    """
    most = max(role.num_replicas for role in app.roles)
    names = app_names(
        app.name,
        [role.name for role in app.roles],
        len(_TAIL % (most - 1)),
        shorten=not opts.validate_spec,
    )
    app_id = names.app_id
    rank0 = f"{app_id}-{names.roles[app.roles[0].name]}-0-0.{app_id}"
    jobs = []
    disrupted = []
    place: Place | None = None
    for role_idx, role in enumerate(app.roles):
        labels = role_labels(app, role_idx, role, app_id)
        gang = is_gang(app, role, opts)
        place = Place(
            app_id,
            opts.namespace,
            labels,
            pod_annotations(role, names.roles[role.name]),
            rank0,
            index_path=INDEX_PATH,
        )
        job = {
            "metadata": {
                "labels": dict(labels),
                "annotations": {ANNOTATION_ROLE_NAME: role.name},
            },
            "spec": job_spec(role, names.roles[role.name], place, opts, together=True, gang=gang),
        }
        pod_failures = copy.deepcopy(job["spec"]["podFailurePolicy"])
        for target in (app, role):
            overlay = substituted(overlay_of(target, JOB), place.values())
            overlay_job(job, overlay, known_only=opts.known_only)
        # A rule of the user's overlay may fail the Job for an exit code. Such a failure has the
        # same reason as a disruption, but must not restart the JobSet without limit.
        if gang and job["spec"].get("podFailurePolicy") == pod_failures:
            disrupted.append(names.roles[role.name])
        jobs.append({"name": names.roles[role.name], "replicas": 1, "template": job})
    spec: dict[str, Any] = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All"},
        "replicatedJobs": jobs,
    }
    failure_policy = jobset_retries(app, opts, names.roles, disrupted)
    if failure_policy:
        spec["failurePolicy"] = failure_policy
    if opts.ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = opts.ttl_seconds
    jobset = {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": object_metadata(app, app_id, object_labels(app, app_id), opts),
        "spec": spec,
    }
    if opts.queue:
        suspend_for_kueue(jobset, None, opts.queue)
    if place is not None:
        overlay = substituted(overlay_of(app, JOBSET), place.values())
        overlay_object(jobset, overlay, JOBSET, known_only=opts.known_only)
    return jobset
