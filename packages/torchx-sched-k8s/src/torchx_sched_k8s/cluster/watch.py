"""Being told by the cluster that an app has changed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import selector
from torchx_sched_k8s.cluster.paths import BATCH, JOBSET, VOLCANO, object_path
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.views import AppView

_LONGEST = 30.0
_PAUSE = 0.5
#: Where nothing can be watched, the app is looked at so often, in seconds.
_REFUSED_PAUSE = 2.0
_GONE = 410
#: What a cluster knows just now, however old it is.
_ANY = "0"


def wait_for_change(
    cluster: Cluster, namespace: str, view: AppView | None, timeout: float | None
) -> None:
    """Returns when an app's objects have changed since they were read.

    What goes wrong counts as a change: its caller looks again, after a pause.

    Args:
        cluster: where
        namespace: of the app
        view: what was read
        timeout: returns after that many seconds, after half a minute if None
    """
    until = time.monotonic() + min(_LONGEST, _LONGEST if timeout is None else timeout)
    pause = _PAUSE
    if view is not None and view.api != "mcad":
        try:
            changed = _changes(cluster, namespace, view, until, _newest(view))
            if changed is False:  # a cluster does not keep for long what has changed since when
                changed = _changes(cluster, namespace, view, until, _ANY)
            if changed:
                pause = 0.05  # what comes together is told together
        except ApiError:
            pause = _REFUSED_PAUSE
        except BackendError:
            pass
    time.sleep(min(pause, max(until - time.monotonic(), 0)))


def _changes(
    cluster: Cluster, namespace: str, view: AppView, until: float, version: str
) -> bool | None:
    """Returns True when one of an app's objects has changed since a version, False if the cluster
    does not know that version any more, None if it has ended the watch.

    Raises:
        BackendError: the cluster refuses, or does not answer
    """
    api, plural = {"batch": (BATCH, "jobs"), "jobset": (JOBSET, "jobsets")}.get(
        view.api, (VOLCANO, "jobs")
    )
    query: dict[str, object] = {
        "watch": "true",
        "resourceVersion": version,
        "timeoutSeconds": max(1, int(until - time.monotonic())),
    }
    if view.api == "batch":
        query["labelSelector"] = selector(instance=view.app_id)
    else:
        query["fieldSelector"] = f"metadata.name={view.app_id}"
    known = {one["metadata"]["name"]: _order(_version(one)) for one in view.objects}
    path, what = object_path(api, namespace, plural), f"watch the app {view.app_id}"
    wait = max(until - time.monotonic(), 0.1)
    try:
        with cluster.open("GET", path, what, query, timeout=wait) as answer:
            for event in _events(answer.chunks()):
                found = event.get("object") or {}
                if event.get("type") == "ERROR" and found.get("code") == _GONE:
                    return False
                # without a version it begins with all there is
                begins = version == _ANY and event.get("type") != "DELETED"
                name = (found.get("metadata") or {}).get("name")
                if not begins or _order(_version(found)) > known.get(name, (0, "")):
                    return True
    except ApiError as e:
        if e.status == _GONE and version != _ANY:
            return False
        raise
    return None


def _events(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as e:
                    raise BackendError(f"the answer to a watch is not JSON: {e}") from e


def _version(resource: Mapping[str, Any]) -> str:
    return str((resource.get("metadata") or {}).get("resourceVersion") or "0")


def _order(version: str) -> tuple[int, str]:
    return len(version), version


def _newest(view: AppView) -> str:
    return max(map(_version, view.objects), key=_order)
