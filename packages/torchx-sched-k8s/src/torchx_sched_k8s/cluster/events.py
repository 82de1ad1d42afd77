"""Read events of a cluster's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def last_warning(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the last warning event of an object, by one request; empty if there is none.

    The text is also empty if the user may not read events.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        name: Name of the object.
    """
    query = {"fieldSelector": f"involvedObject.name={name},type=Warning", "limit": 100}
    try:
        action = f"list the events of {name}"
        response = cluster.get(object_path(CORE, namespace, "events"), action, query)
    except ApiError:
        return ""
    events = [event for event in response.get("items") or () if event.get("type") == "Warning"]
    if not events:
        return ""
    last = max(events, key=_order)
    return one_line(f"{last.get('reason') or 'Warning'}: {last.get('message') or ''}").rstrip(": ")


def _order(event: Mapping[str, Any]) -> tuple[str, int]:
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    when = next((str(time) for time in times if time), "")
    # times have seconds only; of events in the same second, prefer the most detailed message
    return when, len(str(event.get("message") or ""))
