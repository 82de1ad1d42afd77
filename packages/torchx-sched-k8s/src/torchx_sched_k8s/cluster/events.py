"""Read events of a cluster's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: How many events of one object are read.
_MOST_EVENTS = 500


def last_warning(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the last warning event of an object, by one request; empty if there is none.

    The text is also empty if the user may not read events.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
    """
    events = list_events(cluster, namespace, name, type="Warning")
    warnings = [event for event in events if event.get("type") == "Warning"]
    # times have seconds only; of events in the same second, prefer the most detailed message
    last = max(warnings, key=lambda e: (event_time(e), len(event_text(e))), default=None)
    return event_text(last) if last else ""


def list_events(
    cluster: Cluster, namespace: str, name: str, **fields: str
) -> list[Mapping[str, Any]]:
    """Return events of an object, by one request; none if the user may not read events.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
        **fields: Values that the events must have: ``type``, or ``kind`` (kind of the object).
    """
    paths = {"type": "type", "kind": "involvedObject.kind"}
    selected = [f"{paths[key]}={value}" for key, value in fields.items()]
    selector = ",".join([f"involvedObject.name={name}", *selected])
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
    """Return when an event last happened, as text in the form of the API."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")
