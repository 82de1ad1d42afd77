"""Read when apps were submitted, started and ended from their objects.

The APIs report different times. Plain Jobs have a start and a completion time, Volcano Jobs and
AppWrappers only the times of their phases, and JobSets only the time of their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from torchx_kit.times import datetime_of
from torchx_sched_k8s.cluster.labels import ANNOTATION_CANCELLED, annotations_of
from torchx_sched_k8s.status.job_states import true_conditions

_ENDS = ("Complete", "Completed", "Failed")


def time_stamp() -> str:
    """Return the present time in the form of the API: UTC, in whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def creation(objects: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the first of an app's objects was created, or None if unknown."""
    return earliest((one.get("metadata") or {}).get("creationTimestamp") for one in objects)


def job_start(jobs: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the Job controller started the first of an app's Jobs, or None if unknown."""
    return earliest((job.get("status") or {}).get("startTime") for job in jobs)


def end_of(objects: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the last of an app's Jobs or JobSets ended; None if unknown.

    A Job or JobSet ends when it completes, fails or is cancelled.
    """
    times: list[object] = []
    for one in objects:
        times.append((one.get("status") or {}).get("completionTime"))
        true = true_conditions(one)
        times += [true[name].get("lastTransitionTime") for name in _ENDS if name in true]
        times.append(annotations_of(one).get(ANNOTATION_CANCELLED))
    return latest(times)


def phase_times(
    resource: Mapping[str, Any], running: Iterable[str], ended: Iterable[str]
) -> tuple[datetime | None, datetime | None]:
    """Return when a Volcano Job or an AppWrapper last started, and when it ended.

    A time that is unknown is None.

    Args:
        resource: The object. Its conditions contain the time at which it reached each phase.
        running: The phases in which pods run.
        ended: The phases of an ended app.
    """
    times: dict[str, list[object]] = {}
    for condition in (resource.get("status") or {}).get("conditions") or ():
        phase = str(condition.get("type") or condition.get("status") or "")
        when = condition.get("lastTransitionTime") or condition.get("lastTransitionMicroTime")
        times.setdefault(phase, []).append(when)
    started = latest(when for phase in running for when in times.get(phase, ()))
    ends = [when for phase in ended for when in times.get(phase, ())]
    return started, latest([*ends, annotations_of(resource).get(ANNOTATION_CANCELLED)])


def earliest(stamps: Iterable[object]) -> datetime | None:
    """Return the earliest of the times in the form of the API, or None if there is none."""
    return min((t for t in map(datetime_of, stamps) if t is not None), default=None)


def latest(stamps: Iterable[object]) -> datetime | None:
    """Return the latest of the times in the form of the API, or None if there is none."""
    return max((t for t in map(datetime_of, stamps) if t is not None), default=None)
