"""Being told by the cluster that an app has changed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from torchx_sched_k8s.connection import BATCH, JOBSET, VOLCANO, Cluster, namespaced
from torchx_sched_k8s.labels import selector
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_k8s.views import AppView

_LONGEST = 30.0
_PAUSE = 0.5


def wait_for_change(
    cluster: Cluster, namespace: str, view: AppView | None, timeout: float | None
) -> None:
    """Returns when an app's objects have changed since they were read.

    What goes wrong counts as a change: its caller looks again.

    Args:
        cluster: where
        namespace: of the app
        view: what was read
        timeout: returns after that many seconds, after half a minute if None
    """
    until = time.monotonic() + min(_LONGEST, _LONGEST if timeout is None else timeout)
    if view is None or view.api == "mcad":
        time.sleep(min(_PAUSE, max(until - time.monotonic(), 0)))
        return
    api, plural = {"batch": (BATCH, "jobs"), "jobset": (JOBSET, "jobsets")}.get(
        view.api, (VOLCANO, "jobs")
    )
    versions = [str(one["metadata"].get("resourceVersion") or "0") for one in view.objects]
    newest = max(versions, key=lambda version: (len(version), version))
    query: dict[str, object] = {
        "watch": "true",
        "resourceVersion": newest,
        "timeoutSeconds": max(1, int(until - time.monotonic())),
    }
    if view.api == "batch":
        query["labelSelector"] = selector(instance=view.app_id)
    else:
        query["fieldSelector"] = f"metadata.name={view.app_id}"
    what = f"watch the app {view.app_id}"
    try:
        path = namespaced(api, namespace, plural)
        timeout = max(until - time.monotonic(), 0.1)
        with cluster.open("GET", path, what, query, timeout=timeout) as answer:
            for piece in answer.pieces():
                if piece.strip():
                    break
    except BackendError:
        time.sleep(min(_PAUSE, max(until - time.monotonic(), 0)))
    else:
        time.sleep(0.05)  # what comes together is told together
