"""Named sequences of a pod's states, for events that cannot happen on this machine.

A test adds a row with :meth:`Table.add`: the pods, the sequence and its parameters. A sequence is a
function that gets the pod's worker and the row. If the function returns True, the pod's processes
run afterwards. The sequences in ``BEFORE_BINDING`` have no function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from k8s_double.controllers.scheduling import SCHEDULER, set_condition
from k8s_double.kinds import PODS
from k8s_double.store import Object

if TYPE_CHECKING:
    from k8s_double.node.pod_worker import Worker

# Sequences that keep pods from getting a node. `Cluster._bind` plays them.
BEFORE_BINDING = frozenset({"unschedulable", "unscheduled"})


class Table:
    """The rows that tests have added."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row.

        Args:
            row: ``sequence`` (name of the sequence); ``name`` (a part of the pods' names) and
                ``labels`` of the pods; ``count`` (number of pods, by default all); and the
                parameters of the sequence.

        Raises:
            ValueError: There is no such sequence.
        """
        if row["sequence"] not in {*SEQUENCES, *BEFORE_BINDING}:
            known = ", ".join(sorted({*SEQUENCES, *BEFORE_BINDING}))
            raise ValueError(f"no sequence named {row['sequence']}; there are {known}")
        with self._lock:
            self.rows.append(dict(row))

    def find(self, pod: Object) -> dict[str, Any] | None:
        """Return the first row that matches a pod, or None; leave its ``count`` unchanged."""
        labels = pod["metadata"].get("labels") or {}
        for row in self.rows:
            if row.get("name") and row["name"] not in pod["metadata"]["name"]:
                continue
            if any(labels.get(k) != v for k, v in (row.get("labels") or {}).items()):
                continue
            if row.get("count") == 0:
                continue
            return row
        return None

    def take(self, pod: Object) -> dict[str, Any] | None:
        """Return the first row that matches a pod, or None; reduce its ``count`` by one."""
        with self._lock:
            row = self.find(pod)
            if row is not None and row.get("count"):
                row["count"] -= 1
            return row

    def clear(self) -> None:
        with self._lock:
            self.rows.clear()


def play(row: dict[str, Any], worker: Worker) -> bool:
    """Play the sequence of a row; return whether the pod's processes run afterwards."""
    found = SEQUENCES.get(row["sequence"])
    return True if found is None else bool(found(worker, row))


def no_image(worker: Worker, container: str, image: str, policy: str) -> None:
    """Show that an image is not on the node, and wait until the pod is deleted."""
    _pull(worker, container, image, "", policy)


def _pull(worker: Worker, container: str, image: str, message: str, policy: str = "") -> None:
    if policy == "Never":
        words = f'Container image "{image}" is not present with pull policy of Never'
        worker.wait_states("ErrImageNeverPull", words)
        worker.event("ErrImageNeverPull", words, "Warning", container)
        worker.sleep(86400)
    why = message or (
        f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": failed'
        f' to do request: Head "https://{image.partition("/")[0]}/v2/": dial tcp: lookup'
        " registry: no such host"
    )
    delay = 0.4
    worker.wait_states("ContainerCreating")
    while True:
        # like a kubelet, show the last reason until there is a new one
        worker.event("Pulling", f'Pulling image "{image}"', container=container)
        worker.sleep(0.1)
        failed = f'Failed to pull image "{image}": {why}'
        worker.wait_states("ErrImagePull", why)
        worker.event("Failed", failed, "Warning", container)
        worker.event("Failed", "Error: ErrImagePull", "Warning", container)
        worker.sleep(0.3)
        worker.wait_states(
            "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}'
        )
        worker.event("BackOff", f'Back-off pulling image "{image}"', container=container)
        worker.event("Failed", "Error: ImagePullBackOff", "Warning", container)
        worker.sleep(delay)
        delay = min(300.0, delay * 8)


def _image_pull(worker: Worker, row: dict[str, Any]) -> bool:
    container = worker.main[0]
    _pull(worker, container.name, container.spec["image"], row.get("message", ""))
    return False


def _image_pull_error(worker: Worker, row: dict[str, Any]) -> bool:
    container = worker.main[0]
    why = row.get("message") or "rpc error: code = NotFound desc = not found"
    worker.wait_states("ErrImagePull", why)
    image = container.spec["image"]
    worker.event("Failed", f'Failed to pull image "{image}": {why}', "Warning", container.name)
    worker.sleep(86400)
    return False


def _invalid_image(worker: Worker, row: dict[str, Any]) -> bool:
    image = worker.main[0].spec["image"]
    words = (
        f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}":'
        " invalid reference format"
    )
    worker.wait_states("InvalidImageName", words)
    worker.event("InspectFailed", words, "Warning", worker.main[0].name)
    worker.sleep(86400)
    return False


def _config_error(worker: Worker, row: dict[str, Any]) -> bool:
    words = row.get("message") or 'secret "absent" not found'
    worker.wait_states("CreateContainerConfigError", words)
    worker.event("Failed", f"Error: {words}", "Warning", worker.main[0].name)
    worker.sleep(86400)
    return False


def _oom(worker: Worker, row: dict[str, Any]) -> bool:
    worker.run_states()
    worker.print(row.get("lines") or [])
    worker.sleep(row.get("seconds", 0.2))
    worker.close_logs()
    worker.end_states("Failed", 137, "OOMKilled")
    return False


def _evicted(worker: Worker, row: dict[str, Any]) -> bool:
    worker.run_states()
    worker.print(row.get("lines") or [])
    worker.sleep(row.get("seconds", 0.2))
    worker.close_logs()
    words = row.get("message") or (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi."
        f" Container {worker.main[0].name} was using 900Mi, request is 100Mi, has larger"
        " consumption of memory."
    )

    def disrupted(obj: Object) -> None:
        set_condition(obj, "DisruptionTarget", "True", "TerminationByKubelet", words)

    worker.change(disrupted)
    worker.event("Evicted", words, "Warning")
    worker.end_states("Failed", 137, "Error", pod_reason="Evicted", pod_message=words)
    return False


def _preempted(worker: Worker, row: dict[str, Any]) -> bool:
    worker.run_states()
    worker.print(row.get("lines") or [])
    worker.sleep(row.get("seconds", 0.2))
    words = "default-scheduler: preempting to accommodate a higher priority pod"

    def disrupted(obj: Object) -> None:
        set_condition(obj, "DisruptionTarget", "True", "PreemptionByScheduler", words)

    worker.change(disrupted)
    worker.store.event(
        PODS,
        worker.pod,
        "Preempted",
        f"Preempted by pod default/urgent-0 on node {worker.pod['spec'].get('nodeName')}",
        component=SCHEDULER,
    )
    worker.sleep(0.2)
    worker.close_logs()
    worker.end_states("Failed", 137, "Error")
    worker.sleep(row.get("stays", 0.2))
    worker.store.remove(PODS, worker.namespace, worker.pod_name)
    return False


def _refused_by_node(worker: Worker, row: dict[str, Any]) -> bool:
    words = row.get("message") or (
        "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate"
        " unhealthy devices nvidia.com/gpu, which is unexpected"
    )
    worker.event("UnexpectedAdmissionError", words, "Warning")

    def failed(obj: Object) -> None:
        obj["status"].update(phase="Failed", reason="UnexpectedAdmissionError", message=words)

    worker.change(failed)
    return False


def _pretended(worker: Worker, row: dict[str, Any]) -> bool:
    """Simulate a run without a process: print ``lines``, and end after ``seconds``.

    Without ``seconds``, the pod runs until it is deleted.
    """
    worker.run_states()
    worker.print(row.get("lines") or [])
    if row.get("seconds") is not None:
        worker.sleep(row["seconds"])
        worker.close_logs()
        worker.end_states("Succeeded", 0, "Completed")
        return False
    worker.pretend = True
    return False


def _slow(worker: Worker, row: dict[str, Any]) -> bool:
    """Stay in ContainerCreating for ``seconds``; then run the pod's processes."""
    worker.wait_states("ContainerCreating")
    worker.sleep(row.get("seconds", 1.0))
    return True


SEQUENCES: dict[str, Callable[[Worker, dict[str, Any]], bool]] = {
    "image-pull-back-off": _image_pull,
    "image-pull-error": _image_pull_error,
    "invalid-image-name": _invalid_image,
    "config-error": _config_error,
    "oom-killed": _oom,
    "evicted": _evicted,
    "preempted": _preempted,
    "refused-by-node": _refused_by_node,
    "pretended": _pretended,
    "slow": _slow,
}
