"""The backend ``batch``: plain Jobs, on any cluster, and a headless Service.

An app of plain Jobs consists of several objects. The Job that is created first has a label and an
annotation until all objects exist and all Jobs were started. If the client is killed before that,
status shows the unfinished submission, and the next submission of an app with this name on the same
machine removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.submitter import has_ended, this_process
from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.supervision import (
    Supervision,
    find_supervisor,
    install_hint,
    is_restarted,
    is_supervisor,
    supervision_of,
)
from torchx_sched_k8s.cluster.kueue import suspend
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_ENDED,
    CORE,
    LABEL_ORGANIZATION,
    LABEL_QUEUE,
    LABEL_ROLE_INDEX,
    LABEL_UNIQUE_NAME,
    MIN_PARALLELISM,
    ORGANIZATION,
    annotations_of,
    json_annotation,
    labels_of,
    object_labels,
    object_path,
    selector,
)
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.kubernetes_job import (
    deciding_roles,
    job_retries,
    object_metadata,
    policy_of,
)
from torchx_sched_k8s.request.overlays import overlay_job, pod_template
from torchx_sched_k8s.request.pods import Place
from torchx_sched_k8s.status.views import (
    AppView,
    app_view,
    combined,
    end_of,
    job_start,
    job_state,
    role_name_of,
    role_of_job,
)
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


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
    return {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        **job_retries(role, opts, together=together, gang=gang),
        "template": pod_template(role, container, place, opts),
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


#: Marks the first Job of an unfinished submission.
LABEL_UNFINISHED = "torchx.pytorch.org/unfinished"
#: JSON with the submitting process (machine, pid, start time) and the names of the app's Jobs.
ANNOTATION_SUBMISSION = "torchx.pytorch.org/submission"
#: Label of the Jobs of a JobSet.
LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"


class BatchBackend(Backend):
    """Runs each role as an Indexed Job."""

    name = "batch"
    api_version = "batch/v1"
    kind = "Job"

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
        restarted = is_restarted(app, opts)
        ends_roles = opts.fail_together and len(app.roles) > 1
        supervisor = find_supervisor() if restarted or ends_roles else None
        app_id, places = self.places(app, opts)
        service = make_service(app, app_id, opts)
        jobs = []
        for role, name, place in places:
            job: dict[str, Any] = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": object_metadata(app, f"{app_id}-{name}", place.labels, opts, role.name),
                "spec": job_spec(role, name, place, opts, together=restarted, gang=restarted),
            }
            job["spec"]["template"]["spec"]["subdomain"] = app_id
            if opts.queue:
                suspend_for_kueue(job, role, opts.queue)
            if opts.ttl_seconds is not None and supervisor is None:
                job["spec"]["ttlSecondsAfterFinished"] = opts.ttl_seconds
            overlay_job(job, app, role, app_id, opts)
            jobs.append(job)
        objects = [service, *jobs]
        if supervisor is not None:
            objects = supervisor.supervise(app, app_id, service, jobs, opts)
        return {"apiVersion": "v1", "kind": "List", "items": objects}

    def problems(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        for role in deciding_roles(app):
            yield (
                f"role '{role.name}': plain Jobs cannot end the other roles after its success"
                f" (metadata {ENDS_APP_KEY}); use job_api=jobset or volcano"
            )
        if opts.queue and len(app.roles) > 1:
            yield (
                f"option queue={opts.queue}: with job_api=batch Kueue admits the Job of each of the"
                f" {len(app.roles)} roles by itself, so some roles may wait for quota that others"
                " hold; use job_api=jobset, which Kueue admits as a whole"
            )
        if is_restarted(app, opts) and find_supervisor() is None:
            option, other = "retry_policy=APPLICATION", "; or use job_api=jobset"
            if opts.has_attempts:
                option, other = "requeue", ""
            yield (
                f"option {option}: with job_api=batch, a supervisor restarts the app;"
                f" run: {install_hint()}{other}"
            )
        for role in app.roles:
            if (
                role.max_retries > 0
                and role.num_replicas > 1
                and policy_of(role, opts) == RetryPolicy.ROLE
            ):
                yield (
                    f"role '{role.name}': RetryPolicy.ROLE restarts its {role.num_replicas}"
                    " replicas together, which plain Jobs cannot do; use job_api=volcano, or -cfg"
                    " retry_policy=APPLICATION, which restarts the whole app, or -cfg"
                    " retry_policy=REPLICA, which restarts the failed replica alone (for torchrun)"
                )

    def warnings(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        # The default policy of a role is APPLICATION, but plain Jobs restart only the failed
        # replica. Only the option retry_policy=APPLICATION adds a supervisor that restarts the app.
        if is_restarted(app, opts):
            return
        if len(app.roles) > 1 and not opts.fail_together:
            yield (
                f"app {app.name}: when one of its {len(app.roles)} roles fails for good, plain Jobs"
                " do not end the others; job_api=jobset ends them, and so does -cfg"
                " fail_together=True"
            )
        elif len(app.roles) > 1 and find_supervisor() is None:
            yield (
                f"app {app.name}: when one of its {len(app.roles)} roles fails for good, the others"
                " run on until the app is deleted, because the supervisor that ends them is not"
                f" installed; run: {install_hint()}; or use job_api=jobset"
            )
        for role in app.roles:
            alone = sum(one.num_replicas for one in app.roles) == 1
            if (
                role.max_retries > 0
                and policy_of(role, opts) == RetryPolicy.APPLICATION
                and not alone
            ):
                yield (
                    f"role {role.name}: with plain Jobs a retry restarts the failed replica alone"
                    " (as torchrun needs); -cfg retry_policy=APPLICATION restarts the whole app,"
                    " and so do job_api=jobset and job_api=volcano"
                )

    def view(self, app_id: str, objects: Sequence[Mapping[str, Any]]) -> AppView:
        return self._view(app_id, supervision_of(objects))

    def _view(self, app_id: str, supervision: Supervision) -> AppView:
        several = len(supervision.role_jobs) > 1
        states, roles, messages = [], [], []
        for i, job in enumerate(supervision.role_jobs):
            state, message = supervision.state_of(job)
            spec, status = job["spec"], job.get("status") or {}
            states.append(state)
            if message:
                messages.append((state, f"{role_name_of(job)}: {message}" if several else message))
            replaced = supervision.is_replaced(job)
            limit = spec.get("backoffLimitPerIndex") or spec.get("backoffLimit")
            roles.append(
                role_of_job(
                    int(labels_of(job).get(LABEL_ROLE_INDEX) or i),
                    role_name_of(job),
                    spec,
                    str(job["metadata"]["name"]),
                    state=state,
                    retries=int(supervision.max_restarts(job) or limit or 0),
                    succeeded=_indices("" if replaced else status.get("completedIndexes") or ""),
                    failed=_indices("" if replaced else status.get("failedIndexes") or ""),
                    wants_pods=not (is_terminal(state) or spec.get("suspend") or replaced),
                    ended_for=annotations_of(job).get(ANNOTATION_ENDED, ""),
                    owner_uid=str(job["metadata"].get("uid") or ""),
                    started=str(status.get("startTime") or ""),
                    failures=int(status.get("failed") or 0),
                )
            )
        state = combined([*states, *[supervision.missing_state] * supervision.missing])
        message = next((text for of, text in messages if of == state), "")
        if supervision.ended and state != AppState.SUCCEEDED:
            state, message = supervision.ended
        elif state == AppState.FAILED and not all(map(is_terminal, states)):
            active = supervision.is_active
            message += "; other roles still run, "
            message += "the supervisor ends them" if active else "delete the app to end them"
        return app_view(
            self,
            app_id,
            supervision.objects,
            state=state,
            message=message,
            roles=roles,
            restarts=supervision.restarts,
            supervision=supervision,
            unfinished=unfinished_message(supervision.objects),
            runs_again=supervision.may_restart and not is_terminal(state),
            started=job_start(supervision.role_jobs),
            ended=end_of(supervision.role_jobs),
        )

    def find(self, cluster: Cluster, namespace: str, app_id: str) -> AppView | None:
        query = {"labelSelector": f"{selector(instance=app_id)},!{LABEL_JOBSET}"}
        jobs = cluster.get(self.path(namespace), f"find the app {app_id}", query).get("items")
        return self._view(app_id, supervision_of(jobs, cluster, namespace)) if jobs else None

    def list(self, cluster: Cluster, namespace: str, action: str) -> Iterable[AppView]:
        jobs: dict[str, list[Mapping[str, Any]]] = {}
        query = {"labelSelector": f"{selector()},!{LABEL_JOBSET}"}
        for job in cluster.list_items(self.path(namespace), action, query):
            jobs.setdefault(labels_of(job).get(LABEL_UNIQUE_NAME) or "", []).append(job)
        return [self.view(name, found) for name, found in jobs.items() if name]

    def watch_query(self, app_id: str) -> dict[str, str]:
        return {"labelSelector": selector(instance=app_id)}

    def is_over(self, view: AppView) -> bool:
        # An ended app has unfinished Jobs if a cancel was interrupted, or for a short time after
        # another role has failed.
        return view.state == AppState.SUCCEEDED or (
            is_terminal(view.state)
            and all(is_supervisor(job) or is_terminal(job_state(job)[0]) for job in view.objects)
        )

    def end(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        changes: Mapping[str, Any],
        when: str,
    ) -> None:
        jobs: Iterable[Mapping[str, Any]] = view.objects
        if view.supervision is not None:
            jobs = view.supervision.stop(cluster, namespace, view.app_id, changes)
        for job in jobs:
            if not is_terminal(job_state(job)[0]):
                path = self.path(namespace, str(job["metadata"]["name"]))
                suspend(cluster, namespace, path, job, changes, deadline=True)

    def delete(self, cluster: Cluster, namespace: str, view: AppView) -> None:
        super().delete(cluster, namespace, view)
        path = object_path(CORE, namespace, "services", view.app_id)
        cluster.delete(path, f"delete the service {view.app_id}")
        for api, plural, name in view.supervision.dependents() if view.supervision else ():
            cluster.delete(object_path(api, namespace, plural, name), f"delete {name} of {plural}")


BATCH = BatchBackend()


def _indices(text: str) -> frozenset[int]:
    """Return the indices in a list of ranges.

    >>> sorted(_indices("1-3,7"))
    [1, 2, 3, 7]
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def unfinished_mark(jobs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the labels and annotations that mark the first Job of a submission.

    Args:
        jobs: All Jobs of the app.
    """
    submission = {**this_process(), "jobs": [str(job["metadata"]["name"]) for job in jobs]}
    return {
        "labels": {LABEL_UNFINISHED: "true"},
        "annotations": {ANNOTATION_SUBMISSION: json.dumps(submission)},
    }


def finished_mark() -> dict[str, Any]:
    """Return the merge patch that removes the mark from the first Job's metadata."""
    return {
        "labels": {LABEL_UNFINISHED: None},
        "annotations": {ANNOTATION_SUBMISSION: None},
    }


def unfinished_message(jobs: Iterable[Mapping[str, Any]]) -> str:
    """Return the status message of an unfinished submission; empty if the submission is finished.

    Args:
        jobs: The existing Jobs of the app.
    """
    jobs = list(jobs)
    first = next((job for job in jobs if LABEL_UNFINISHED in labels_of(job)), None)
    if first is None:
        return ""
    submission = _submission_of(first)
    names = submission.get("jobs") or []
    existing = {str(job["metadata"]["name"]) for job in jobs}
    count = sum(name in existing for name in names)
    machine = str(submission.get("machine") or "").partition(" ")[0] or "an unknown machine"
    return (
        f"its submission is not finished ({count} of {len(names)} Jobs exist); if process"
        f" {submission.get('pid')} on {machine} has ended, submit the app again or delete it"
    )


def is_abandoned(job: Mapping[str, Any]) -> bool:
    """Return whether the process that created the first Job of a submission has ended.

    The result is False for a process of another machine or container, which may still run, and for
    a Job without the record of a submission.
    """
    return has_ended(_submission_of(job)) is True


def _submission_of(job: Mapping[str, Any]) -> dict[str, Any]:
    submission = json_annotation(job, ANNOTATION_SUBMISSION)
    return submission if isinstance(submission, dict) else {}
