"""The status of an app that has a supervisor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from torchx_k8s_supervisor import program
from torchx_kit.jobs.pending_reasons import explained
from torchx_kit.times import moment
from torchx_sched_k8s.backends.supervision import Supervision, is_supervisor
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    ANNOTATION_ENDED,
    BATCH,
    CORE,
    RBAC,
    annotations_of,
    object_path,
    selector,
)
from torchx_sched_k8s.request.kubernetes_job import MANIFESTS
from torchx_sched_k8s.status.events import last_warning
from torchx_sched_k8s.status.pending_reasons import PENDING
from torchx_sched_k8s.status.pod_states import Pod, latest
from torchx_sched_k8s.status.views import (
    job_state,
    true_conditions,
)
from torchx_specs.model.status import AppState, AttemptStatus, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: Annotation with the number of the app's roles. Only the Job of a supervisor that restarts the app
#: has it.
ANNOTATION_ROLES = "torchx.pytorch.org/roles"
#: Part of the message of an app whose supervisor does not run.
NOT_ENDED = "if a role fails, the others run on until the app is deleted"
#: Name of the supervisor in messages.
_SUPERVISOR = "the app's supervisor"
#: How long a cancellation waits for the supervisor's pod to end, in seconds.
_STOP_SECONDS = 15.0
_STOP_PAUSE = 0.3


class SupervisedApp(Supervision):
    """The state of an app's Jobs, interpreted together with the app's supervisor.

    Args:
        jobs: The app's existing Jobs, including the supervisor's Job.
        missing_jobs: Manifests of roles' Jobs that do not exist because the app is being restarted.
    """

    def __init__(
        self, jobs: Sequence[Mapping[str, Any]], missing_jobs: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(jobs, missing_jobs)
        supervisor = self.objects[0]
        self._missing_names = {str(job["metadata"]["name"]) for job in missing_jobs}
        self.restarts = max(program.number_of(job, program.RESTARTS) for job in self.objects)
        self._annotations = annotations_of(supervisor)
        self._state, self._reason = job_state(supervisor)
        if ANNOTATION_CANCELLED in self._annotations:
            when = self._annotations[ANNOTATION_CANCELLED]
            self.ended = AppState.CANCELLED, f"cancelled {when}"
        elif ANNOTATION_ENDED in self._annotations:
            self.ended = AppState.FAILED, self._annotations[ANNOTATION_ENDED]
        self._is_decided = self.ended is not None or is_terminal(self._state)
        self._restarts_app = ANNOTATION_ROLES in self._annotations
        self._has_attempts = program.REQUEUE in self._annotations
        noted = program.attempts_of(supervisor)
        steps = [None, *(step for _, _, _, step, _ in noted)]
        self._attempts = [
            AttemptStatus(
                number, moment(began), moment(ended), reason, steps[number], step, tuple(nodes)
            )
            for number, (began, ended, reason, step, nodes) in enumerate(noted)
        ]
        self.is_active = not self._is_decided and not supervisor["spec"].get("suspend")
        self.may_restart = self.is_active and self._restarts_app
        roles = program.number_of(supervisor, ANNOTATION_ROLES)
        self.missing = max(roles - len(self.role_jobs), self.missing)
        if self._is_decided:
            self.missing_state = self.ended[0] if self.ended else self._state

    def is_replaced(self, job: Mapping[str, Any]) -> bool:
        """Return whether a role's Job does not exist or will be replaced by the present restart."""
        if job["metadata"]["name"] in self._missing_names:
            return True
        earlier = program.number_of(job, program.RESTARTS) < self.restarts
        return self.may_restart and (earlier or "deletionTimestamp" in job["metadata"])

    def state_of(self, job: Mapping[str, Any]) -> tuple[AppState, str]:
        """Return the state of a role's Job, and the reason (empty if there is none)."""
        if job["metadata"]["name"] in self._missing_names:
            deleted = self.missing_state == AppState.FAILED
            return self.missing_state, "its Job was deleted" if deleted else ""
        if self.is_replaced(job):
            return AppState.PENDING, ""
        state, reason = job_state(job)
        undecided = self.may_restart and state == AppState.FAILED
        if undecided or (self.restarts and state == AppState.SUBMITTED):
            return AppState.PENDING, ""
        if self.ended and self.ended[0] == AppState.CANCELLED and not is_terminal(state):
            return self.ended[0], ""
        present = self._attempts[self.restarts :]
        is_noted = bool(present) and present[0].ended is not None
        if state == AppState.SUCCEEDED and self._has_attempts and self.may_restart and not is_noted:
            return AppState.RUNNING, ""  # until the supervisor has noted the end of the attempt
        return state, reason

    def max_restarts(self, job: Mapping[str, Any]) -> int:
        """Return how many times failures of a role's Job may restart the app."""
        return program.number_of(job, program.MAX_RESTARTS)

    @property
    def restart_reason(self) -> str:
        """Why the app is being restarted, or why its supervisor cannot act; otherwise empty."""
        if not self.is_active:
            if self.ended or self._state not in (AppState.FAILED, AppState.PENDING):
                return ""
            failed = self._state == AppState.FAILED
            how = f"failed ({self._reason})" if failed else "is suspended"
            result = "the app is not restarted" if self._restarts_app else NOT_ENDED
            return f"{_SUPERVISOR} {how}: {result}"
        reasons = []
        existing = [job for job in self.objects if job is not self.supervisor]
        if self.missing or self._missing_names or any(map(self.is_replaced, existing)):
            reasons.append(self._annotations.get(program.REASON) or "")
        else:
            failed_job = program.first_failed(existing)
            if failed_job is not None and self._restarts_app and not self._has_attempts:
                disruptions = program.number_of(self.objects[0], program.DISRUPTIONS)
                reasons.append(program.failed_text(failed_job, self.restarts - disruptions))
        if self._annotations.get(program.TROUBLE):
            reasons.append(f"{_SUPERVISOR}: {self._annotations[program.TROUBLE]}")
        return "; ".join(filter(None, reasons))

    def message(
        self,
        cluster: Cluster,
        namespace: str,
        pods: Sequence[Pod],
        message: str,
        *,
        ended: bool,
    ) -> str:
        parts = [self.restart_reason]
        # if the supervisor has failed for good, the app is not restarted
        has_failed = self.ended is None and self._state == AppState.FAILED
        if (self.is_active or has_failed) and not ended:
            parts.append(_supervisor_problem(cluster, namespace, self, pods))
        parts.append(message)
        return "; ".join(dict.fromkeys(filter(None, parts)))

    def stop(
        self, cluster: Cluster, namespace: str, app_id: str, changes: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """End the supervisor's Job and wait at most 15 seconds for its pod to end.

        A running supervisor could create Jobs while the app is being cancelled. The supervisor's
        Job is suspended. If it has a time to live, it gets a deadline instead: the cluster deletes
        only finished Jobs, and a suspended Job is not finished. The roles' Jobs need no deadline,
        because the cluster deletes them with the supervisor's Job, which owns them.
        """
        if self._is_decided:
            return self.objects[1:]
        action = f"cancel {app_id}"
        expires = "ttlSecondsAfterFinished" in self.objects[0]["spec"]
        ending: dict[str, Any] = {"activeDeadlineSeconds": 1} if expires else {"suspend": True}
        path = object_path(BATCH, namespace, "jobs")
        cluster.patch(f"{path}/{app_id}", {**changes, "spec": ending}, action)
        query = {"labelSelector": selector(instance=app_id)}
        deadline = cluster.clock() + _STOP_SECONDS
        while True:
            jobs = cluster.get(path, action, query).get("items") or []
            stopped = all(_is_stopped(job) for job in jobs if is_supervisor(job))
            if stopped or cluster.clock() > deadline:
                return [
                    job for job in jobs if not is_supervisor(job) and not program.is_deleting(job)
                ]
            cluster.sleep(_STOP_PAUSE)

    def attempts(self, state: AppState, ended: datetime | None) -> list[AttemptStatus]:
        found = list(self._attempts)
        if not self._has_attempts:
            return []
        has_begun = state == AppState.RUNNING or is_terminal(state)
        if len(found) <= self.restarts and has_begun:
            # the supervisor has not noted the start of this attempt
            step = found[-1].committed_step if found else None
            found.append(AttemptStatus(self.restarts, resume_step=step))
        if found and found[-1].ended is None and is_terminal(state):
            found[-1] = replace(found[-1], reason=state.name.lower(), ended=ended)
        return found

    def dependents(self) -> Iterable[tuple[str, str, str]]:
        """Return API path, plural and name of each object that only the supervisor uses.

        The cluster deletes these objects together with the supervisor's Job, which owns them.
        Objects that a user created with kubectl from a dry run have no owner and must be deleted by
        name.
        """
        name = str(self.objects[0]["metadata"]["name"])
        # only a supervisor that restarts the app has a config map
        kinds = [(CORE, "configmaps")] if self._restarts_app else []
        if self.objects[0]["spec"]["template"]["spec"].get("serviceAccountName") == name:
            kinds += [(RBAC, "rolebindings"), (RBAC, "roles"), (CORE, "serviceaccounts")]
        return [(api, plural, name) for api, plural in kinds]


def _is_stopped(job: Mapping[str, Any]) -> bool:
    if not true_conditions(job).keys() & {"Suspended", "Complete", "Failed"}:
        return False
    status = job.get("status") or {}
    return not status.get("active") and not status.get("terminating")


def read_missing_jobs(
    cluster: Cluster, namespace: str, supervision: SupervisedApp
) -> list[dict[str, Any]]:
    """Return the manifests of roles' Jobs that do not exist.

    The manifests are read from the supervisor's config map, by one request. The list is empty if
    the config map cannot be read.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        supervision: The app's Jobs and their supervisor.
    """
    app_id = str(supervision.objects[0]["metadata"]["name"])
    path = object_path(CORE, namespace, "configmaps", app_id)
    existing = {str(job["metadata"]["name"]) for job in supervision.objects}
    try:
        data = (cluster.get_or_none(path, f"read the roles of {app_id}") or {})["data"]
        manifests: list[dict[str, Any]] = json.loads(data[MANIFESTS])
        return [one for one in manifests if one["metadata"]["name"] not in existing]
    except (ApiError, ValueError, KeyError, TypeError):
        # it does not exist, the user may not read it, or another program replaced it
        return []


def _supervisor_problem(
    cluster: Cluster, namespace: str, supervision: SupervisedApp, pods: Sequence[Pod]
) -> str:
    """Return why the supervisor does not run; empty if it runs or if the reason is unknown."""
    supervisor: Mapping[str, Any] = supervision.supervisor or {}
    attempts = latest(pod for pod in pods if pod.role_index < 0 and not pod.role)
    status = supervisor.get("status") or {}
    reason = ""
    if attempts:
        pod = attempts[-1]
        if pod.state in (AppState.PENDING, AppState.FAILED) and not pod.leaving:
            reason = pod.reason
    elif status.get("startTime") and not status.get("active"):
        reason = last_warning(cluster, namespace, str(supervisor["metadata"]["name"]))
    return f"{_SUPERVISOR} does not run: {explained(reason, PENDING)}" if reason else ""
