"""What the events of an object tell of its troubles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def last_warning(cluster: Cluster, namespace: str, name: str) -> str:
    """Returns the last warning about an object, empty if there is none, by one request.

    Args:
        cluster: is asked; not everybody may see events
        namespace: of the object
        name: of the object
    """
    query = {"fieldSelector": f"involvedObject.name={name},type=Warning", "limit": 100}
    try:
        what = f"look for events of {name}"
        found = cluster.get(object_path(CORE, namespace, "events"), what, query)
    except ApiError:
        return ""
    events = [event for event in found.get("items") or () if event.get("type") == "Warning"]
    if not events:
        return ""
    last = max(events, key=_place)
    return one_line(f"{last.get('reason') or 'Warning'}: {last.get('message') or ''}").rstrip(": ")


def _place(event: Mapping[str, Any]) -> tuple[str, int]:
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    when = next((str(time) for time in times if time), "")
    # of those of one second, one tells what has happened and another only names it
    return when, len(str(event.get("message") or ""))
