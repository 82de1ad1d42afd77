"""What a cluster says of a Job, and what that means where a supervisor looks after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    ANNOTATION_ENDED,
    ANNOTATION_MAX_RESTARTS,
    ANNOTATION_RESTART_REASON,
    ANNOTATION_RESTARTS,
    ANNOTATION_ROLE_NAME,
    ANNOTATION_ROLES,
    ANNOTATION_TROUBLE,
    LABEL_QUEUE,
    LABEL_ROLE_NAME,
    annotations_of,
    is_supervisor,
    labels_of,
)
from torchx_specs.model.status import AppState, is_terminal

#: What an app's supervisor is called in messages.
SUPERVISOR = "the app's supervisor"


def job_state(job: Mapping[str, Any]) -> tuple[AppState, str]:
    """Returns the state of a Job, and why."""
    status, spec = job.get("status") or {}, job.get("spec") or {}
    true = true_conditions(job)
    if "Complete" in true:
        return AppState.SUCCEEDED, ""
    if ANNOTATION_CANCELLED in annotations_of(job):
        return AppState.CANCELLED, f"cancelled {annotations_of(job)[ANNOTATION_CANCELLED]}"
    if ANNOTATION_ENDED in annotations_of(job) and not is_supervisor(job):
        return AppState.FAILED, f"ended because {annotations_of(job)[ANNOTATION_ENDED]}"
    if "Failed" in true:
        return AppState.FAILED, words_of(true["Failed"])
    if spec.get("suspend"):
        return AppState.PENDING, suspended_words(job)
    if status.get("ready") or {"FailureTarget", "SuccessCriteriaMet"} & true.keys():
        return AppState.RUNNING, ""
    if status.get("active"):
        return AppState.PENDING, ""
    return (AppState.RUNNING if status.get("succeeded") else AppState.SUBMITTED), ""


def true_conditions(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the conditions of an object that are true, by their types."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return {c["type"]: c for c in conditions if c.get("status") == "True"}


def has_ended(supervisor: Mapping[str, Any]) -> bool:
    """Returns True if an app's supervisor has ended, or is about to: what becomes of the app is
    decided.
    """
    notes = annotations_of(supervisor)
    decided = ANNOTATION_CANCELLED in notes or ANNOTATION_ENDED in notes
    return decided or is_terminal(job_state(supervisor)[0])


class Watch:
    """What an app's supervisor makes of the state of its Jobs.

    Args:
        supervisor: its Job, None if the app has none
        jobs: those of the roles
    """

    def __init__(
        self, supervisor: Mapping[str, Any] | None, jobs: Sequence[Mapping[str, Any]]
    ) -> None:
        self.restarts = max(
            (_number(one, ANNOTATION_RESTARTS) for one in [supervisor, *jobs] if one), default=0
        )
        self.roles = _number(supervisor, ANNOTATION_ROLES) if supervisor else 0
        self._notes = annotations_of(supervisor) if supervisor else {}
        self._state, self._words = job_state(supervisor) if supervisor else (AppState.UNKNOWN, "")
        #: How the app ended, None if it has not, or by itself.
        self.ended: tuple[AppState, str] | None = None
        if ANNOTATION_CANCELLED in self._notes:
            self.ended = AppState.CANCELLED, f"cancelled {self._notes[ANNOTATION_CANCELLED]}"
        elif ANNOTATION_ENDED in self._notes:
            self.ended = AppState.FAILED, self._notes[ANNOTATION_ENDED]
        suspended = bool(supervisor and (supervisor.get("spec") or {}).get("suspend"))
        over = supervisor is not None and has_ended(supervisor)
        #: A Job that fails is not the end.
        self.watches = supervisor is not None and not over and not suspended
        #: The state of a role whose Job is not there.
        self.absent = AppState.PENDING
        if over:
            self.absent = self.ended[0] if self.ended else self._state

    def is_replaced(self, job: Mapping[str, Any]) -> bool:
        """Returns True if a Job is of an earlier attempt."""
        old = _number(job, ANNOTATION_RESTARTS) < self.restarts
        return self.watches and (old or "deletionTimestamp" in job["metadata"])

    def state_of(self, job: Mapping[str, Any], *, there: bool) -> tuple[AppState, str]:
        """Returns the state of a role's Job, and why."""
        if not there:
            return self.absent, "its Job is gone" if self.absent == AppState.FAILED else ""
        if self.is_replaced(job):
            return AppState.PENDING, ""
        state, message = job_state(job)
        undecided = self.watches and state == AppState.FAILED
        if undecided or (self.restarts and state == AppState.SUBMITTED):
            return AppState.PENDING, ""
        if self.ended and self.ended[0] == AppState.CANCELLED and not is_terminal(state):
            return self.ended[0], ""
        return state, message

    def note(self, jobs: Sequence[Mapping[str, Any]], *, replacing: bool) -> str:
        """Returns what is to be told of starting the app again, empty if nothing.

        Args:
            jobs: those of the roles
            replacing: some are not there
        """
        if not self.watches:
            if self.ended or self._state not in (AppState.FAILED, AppState.PENDING):
                return ""
            how = f"failed ({self._words})" if self._state == AppState.FAILED else "is suspended"
            return f"{SUPERVISOR} {how}: nothing starts again"
        told = []
        if replacing or any(map(self.is_replaced, jobs)):
            told.append(self._notes.get(ANNOTATION_RESTART_REASON) or "")
        else:
            failed = [job for job in jobs if job_state(job)[0] == AppState.FAILED]
            for job in sorted(failed, key=_when_failed)[:1]:
                most = _number(job, ANNOTATION_MAX_RESTARTS)
                what = f"restart {self.restarts + 1} of {most}: " if self.restarts < most else ""
                who = f"role '{role_name_of(job)}' failed"
                told.append(f"{what}{who}: {job_state(job)[1]}")
        if self._notes.get(ANNOTATION_TROUBLE):
            told.append(f"{SUPERVISOR}: {self._notes[ANNOTATION_TROUBLE]}")
        return "; ".join(part for part in told if part)


def role_name_of(resource: Mapping[str, Any]) -> str:
    """Returns the name of an object's role, as the AppDef has it."""
    found = annotations_of(resource).get(ANNOTATION_ROLE_NAME)
    return str(found or labels_of(resource).get(LABEL_ROLE_NAME) or "")


def words_of(condition: Mapping[str, Any]) -> str:
    """Returns why a condition is as it is, on one line."""
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    if reason == "PodFailurePolicy":
        # which rule of ours it was says nothing
        reason, message = "", str(message).partition(" matching FailJob")[0]
    return " ".join(": ".join(str(part) for part in (reason, message) if part).split())


def suspended_words(resource: Mapping[str, Any]) -> str:
    """Returns why an object that is suspended is so."""
    queue = labels_of(resource).get(LABEL_QUEUE)
    return f"waits in the queue {queue} of Kueue" if queue else "suspended"


def _when_failed(job: Mapping[str, Any]) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    times = [c.get("lastTransitionTime") for c in conditions if c.get("type") == "Failed"]
    return str(times[0] or "") if times else ""


def _number(resource: Mapping[str, Any] | None, annotation: str) -> int:
    text = annotations_of(resource or {}).get(annotation) or ""
    return int(text) if text.isdigit() else 0
