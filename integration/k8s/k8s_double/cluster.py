"""The whole double: its store, controllers, kubelet and server, and the controllers' loop."""

from __future__ import annotations

import shutil
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

from k8s_double.controllers.jobs import JobController
from k8s_double.controllers.operators import Operators
from k8s_double.controllers.pod_gc import PodGarbageCollector
from k8s_double.controllers.scheduling import Scheduling, node
from k8s_double.kinds import BY_KEY, JOBS, KINDS, NAMESPACES, NODES, PODS
from k8s_double.node.kubelet import Kubelet
from k8s_double.server.admission import Admission
from k8s_double.server.api import Api
from k8s_double.server.front import Front
from k8s_double.store import Change, Object, Store

#: Images that the node has by default. It cannot pull others, because there is no registry.
IMAGES = ["busybox:local", "local/python:3.11"]
CAPACITY = {"cpu": "2048", "memory": "8Ti", "pods": "5000", "ephemeral-storage": "100Gi"}


class Cluster:
    """A cluster of one node.

    Args:
        folder: Folder of the containers' files.
        tls: TLS context of the server; None for HTTP.
        tokens: Maps the tokens of users to the names of the users.
        job_delay: How long before a Job's failed pod is replaced the first time, in seconds.
        images: Images that the node has; None for IMAGES.
        namespaces: Namespaces in addition to ``default`` and ``kube-system``.
    """

    def __init__(
        self,
        folder: Path,
        tls: ssl.SSLContext | None,
        tokens: dict[str, str],
        *,
        job_delay: float = 0.1,
        images: list[str] | None = None,
        namespaces: list[str] | None = None,
    ) -> None:
        self.store = Store()
        self.admission = Admission(self.store)
        self.api = Api(self.store, self.admission)
        images = list(images or IMAGES)
        python = str(Path(sys.executable).parent)
        programs = {image: python for image in images if "python" in image}
        self.kubelet = Kubelet(self.store, folder, images, programs)
        self.scheduling = Scheduling(self.store)
        self.jobs = JobController(self.api, job_delay)
        self.pod_gc = PodGarbageCollector(self.api)
        self.operators = Operators(self.api)
        self.api.mutators.append(self.operators.queue)
        self.front = Front(self, tls, tokens)
        if tls is not None:  # without TLS pods get no token
            self.kubelet.tokens, self.kubelet.ca = tokens, folder / "ca.pem"
        #: Whether the controller of Jobs is paused. Existing pods continue to run.
        self.jobs_paused = False
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.folder = folder
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], float] = {}
        self._pods: dict[tuple[str, str], None] = {}
        self._waiting: dict[tuple[str, str], None] = {}
        self._garbage = False
        self._ended = False
        self.store.listeners += [self._changed, self.kubelet.changed, self.operators.changed]
        #: Namespaces that always exist.
        self.namespaces = list(dict.fromkeys(["default", "kube-system", *(namespaces or ())]))
        self._create_defaults()
        self._thread = threading.Thread(target=self._run, daemon=True, name="controllers")
        self._thread.start()

    def problem(self, text: str) -> None:
        """Record an error in the double itself."""
        self.problems.append(text)

    def close(self) -> None:
        """End the server, the controllers and all processes."""
        self._ended = True
        self._wake.set()
        self.front.down()
        self.kubelet.close()
        self._thread.join(5)
        shutil.rmtree(self.folder / "pods", ignore_errors=True)

    def _create_defaults(self) -> None:
        self.store.create(
            NODES, node(CAPACITY, {"node.kubernetes.io/instance-type": "double.large"})
        )
        for name in self.namespaces:
            self.add_namespace(name)
        self.store.create(
            BY_KEY["queues.scheduling.volcano.sh"],
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": "default"},
                "spec": {"weight": 1},
            },
        )

    def add_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        metadata = {"name": name, "labels": labels or {}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.api.create(NAMESPACES, "", body)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.api.create(BY_KEY["serviceaccounts"], name, account)

    # Methods of the controllers' loop.

    def _changed(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        at = (metadata.get("namespace", ""), metadata["name"])
        with self._lock:
            if change.key == JOBS.key and change.type != "DELETED":
                self._jobs[at] = 0.0
            elif change.key == PODS.key:
                self._pods[at] = None
                if change.type == "DELETED":
                    self.jobs.pod_gone(change.obj)
                for owner in metadata.get("ownerReferences") or []:
                    if owner["kind"] == "Job":
                        self._jobs[(at[0], owner["name"])] = 0.0
                ended = change.obj["status"].get("phase") in ("Succeeded", "Failed")
                if (ended or change.type == "DELETED") and self.scheduling.release(metadata["uid"]):
                    self._pods.update(self._waiting)
                    self._waiting.clear()
            elif change.key == NODES.key:
                self._pods.update(self._waiting)
                self._waiting.clear()
            owned = change.type == "ADDED" and metadata.get("ownerReferences")
            if change.type == "DELETED" or metadata.get("deletionTimestamp") or owned:
                self._garbage = True
        self._wake.set()

    def _run(self) -> None:
        ticked = 0.0
        while not self._ended:
            self._wake.wait(0.05)
            self._wake.clear()
            try:
                self._step()
                if time.monotonic() - ticked > 0.2:
                    ticked = time.monotonic()
                    self.operators.tick()
                    self.jobs.release_orphans()
                self.pod_gc.tick()
            except Exception:
                import traceback

                self.problem(traceback.format_exc())

    def _step(self) -> None:
        with self._lock:
            pods, self._pods = list(self._pods), {}
            due = [at for at, when in self._jobs.items() if when <= time.monotonic()]
            if self.jobs_paused:
                due = []
            for at in due:
                del self._jobs[at]
            garbage, self._garbage = self._garbage, False
        for at in pods:
            pod = self.store.find(PODS, *at)
            if pod is not None and not pod["spec"].get("nodeName"):
                self._bind(pod, at)
        for at in due:
            again = self.jobs.sync(*at)
            if again is not None:
                with self._lock:
                    when = time.monotonic() + again
                    self._jobs[at] = min(self._jobs.get(at, when), when)
        if garbage:
            self.api.collect()
            self._empty_namespaces()

    def _bind(self, pod: Object, at: tuple[str, str]) -> None:
        if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") != "Pending":
            return
        if pod["spec"].get("schedulerName") != "default-scheduler":
            return
        row = self.kubelet.sequences.find(pod)
        if row is not None and row["sequence"] == "unschedulable":
            message = (
                "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes"
            )
            message += " are available: 1 No preemption victims found for incoming pod."
            self.scheduling.refuse(pod, row.get("message") or message)
        elif row is not None and row["sequence"] == "unscheduled":
            pass
        elif self.scheduling.bind(pod):
            return
        with self._lock:
            self._waiting[at] = None

    def look_again(self) -> None:
        """Try again to bind the waiting pods."""
        with self._lock:
            self._pods.update(self._waiting)
            self._waiting.clear()
        self._wake.set()

    def _empty_namespaces(self) -> None:
        known = {obj["metadata"]["name"] for obj in self.store.all(NAMESPACES)}
        for kind in KINDS:
            if kind.namespaced:
                for obj in self.store.all(kind):
                    if obj["metadata"]["namespace"] not in known:
                        options: dict[str, Any] = {"propagationPolicy": "Background"}
                        options["gracePeriodSeconds"] = 0
                        self.api.delete(
                            kind, obj["metadata"]["namespace"], obj["metadata"]["name"], options
                        )
