"""The garbage collector of pods: it removes deleted pods that never had a node."""

from __future__ import annotations

import time

from k8s_double.errors import ApiError
from k8s_double.kinds import PODS
from k8s_double.server.api import Api
from k8s_double.store import Object

#: The pause between two collections, in seconds. A real cluster waits for 20 seconds.
PERIOD = 0.3


class PodGarbageCollector:
    """Sets the phase of unbound pods that are being deleted to ``Failed``, and deletes them.

    Finalizers still delay the removal of such a pod.

    Attributes:
        period: The pause between two collections, in seconds.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.period = PERIOD
        self._last = 0.0

    def tick(self) -> None:
        """Collect pods, unless the last collection was a short time ago."""
        if time.monotonic() - self._last < self.period:
            return
        self._last = time.monotonic()
        for pod in self.api.store.all(PODS):
            metadata = pod["metadata"]
            if not metadata.get("deletionTimestamp") or pod["spec"].get("nodeName"):
                continue
            namespace, name = metadata["namespace"], metadata["name"]
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                self.api.store.mutate(PODS, namespace, name, _fail)
            try:
                self.api.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})
            except ApiError:
                pass  # the pod was removed in the meantime


def _fail(pod: Object) -> None:
    pod["status"]["phase"] = "Failed"
