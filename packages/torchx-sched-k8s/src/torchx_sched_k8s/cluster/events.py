"""Read events of a cluster's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    CORE,
    object_path,
)
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: Maximum number of events to read for one object.
_MOST_EVENTS = 500


def last_warning(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the text of the last warning event of an object, by one request.

    The text is empty if there is no such event, or if the cluster refuses the request.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
    """
    events = list_events(cluster, namespace, name, "type=Warning")
    warnings = [event for event in events if event.get("type") == "Warning"]
    # times have seconds only; of events in the same second, prefer the most detailed message
    last = max(warnings, key=lambda e: (event_time(e), len(event_text(e))), default=None)
    return event_text(last) if last else ""


def waiting_reason(cluster: Cluster, namespace: str, name: str) -> str:
    """Return why a PodGroup of Volcano waits, by one request; empty if there is no known reason.

    Volcano reports an incomplete gang in a warning event, and a full queue in a *normal* event with
    the reason ``Unschedulable`` (``pkg/scheduler/plugins/capacity``, ``proportion`` and
    ``overcommit``). The returned text has both messages, the queue's message first. If the queue's
    message is older than the warning, it no longer applies and is left out.

    Args:
        cluster: The cluster.
        namespace: Namespace of the PodGroup.
        name: Name of the PodGroup.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for event in sorted(
        list_events(cluster, namespace, name, "involvedObject.kind=PodGroup"), key=event_time
    ):
        if event.get("type") == "Warning" or event.get("reason") == "Unschedulable":
            newest[str(event.get("type"))] = event
    warning, full = newest.get("Warning"), newest.get("Normal")
    if full and warning and event_time(full) >= event_time(warning):
        return f"{event_text(full)}; {one_line(warning.get('message') or '')}".rstrip("; ")
    found = warning or full
    return event_text(found) if found else ""


def list_events(cluster: Cluster, namespace: str, name: str, only: str) -> list[Mapping[str, Any]]:
    """Return at most 500 events of an object; none if the cluster refuses the one request.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
        only: Another selector of fields, such as ``involvedObject.kind=Pod``.
    """
    selector = f"involvedObject.name={name},{only}"
    query: dict[str, object] = {"fieldSelector": selector, "limit": _MOST_EVENTS}
    try:
        action = f"list the events of {name}"
        response = cluster.get(object_path(CORE, namespace, "events"), action, query)
    except ApiError:
        return []
    return list(response.get("items") or ())


def event_text(event: Mapping[str, Any]) -> str:
    """Return the reason and the message of an event on one line."""
    text = f"{event.get('reason') or 'Warning'}: {event.get('message') or ''}"
    return one_line(text).rstrip(": ")


def event_time(event: Mapping[str, Any]) -> str:
    """Return when an event last happened, in the text form of the API; empty if unknown."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")
