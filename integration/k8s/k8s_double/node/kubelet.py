"""The kubelet of the one node: its pods, and their logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from k8s_double.errors import bad_request, invalid, invalid_value, not_allowed
from k8s_double.kinds import PODS
from k8s_double.node import sequences
from k8s_double.node.container_logs import ContainerLog
from k8s_double.node.pod_worker import Status, Worker
from k8s_double.store import Change, Object, Store


class Kubelet:
    """The kubelet of the one node.

    Args:
        store: Store of the pods.
        folder: Folder of the containers' files.
        images: Images that the node has; there is no registry.
        programs: Maps images to a folder that comes first in the PATH of their containers.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        images: list[str],
        programs: dict[str, str],
    ) -> None:
        self.store = store
        self.folder = folder
        self.images = images
        self.programs = programs
        self.log_resolution = 1
        self.log_at_once = False
        #: Address of the API server for the pods; set when the server listens.
        self.server = ("127.0.0.1", 0)
        self.tokens: dict[str, str] = {}
        self.ca: Path | None = None
        self.sequences = sequences.Table()
        self.workers: dict[str, Worker] = {}
        self._lock = threading.Lock()

    def changed(self, change: Change) -> None:
        """Start a pod that was bound to the node, or end a deleted pod, after a change."""
        if change.key != PODS.key:
            return
        pod = change.obj
        uid = pod["metadata"]["uid"]
        with self._lock:
            worker = self.workers.get(uid)
            here = change.type != "DELETED" and pod["spec"].get("nodeName")
            if worker is None and here and pod["status"].get("phase") == "Pending":
                worker = self.workers[uid] = Worker(self, pod)
                worker.start()
        if worker is None:
            return
        if change.type == "DELETED":
            worker.kill()
            worker.revoke()
            with self._lock:
                self.workers.pop(uid, None)
        elif pod["metadata"].get("deletionTimestamp"):
            worker.end(pod["metadata"].get("deletionGracePeriodSeconds", 30))

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            workers = list(self.workers.values())
        for worker in workers:
            worker.kill()
        for worker in workers:
            if worker.is_alive():
                worker.join(5)

    def rotate_accounts(self) -> None:
        """Give the pods new tokens, and revoke their old tokens."""
        with self._lock:
            workers = list(self.workers.values())
        for worker in workers:
            worker.rotate()

    # Methods that read logs.

    def log(
        self, pod: Object, query: dict[str, str], wanted: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Return a container's log.

        Raises:
            ApiError: 400 if there is no such container or no log yet, 422 for invalid options.
        """
        name = pod["metadata"]["name"]
        options = _log_options(name, query)
        containers = [
            c["name"]
            for part in ("containers", "initContainers")
            for c in pod["spec"].get(part) or []
        ]
        asked = query.get("container", "")
        if not asked:
            plain = [c["name"] for c in pod["spec"]["containers"]]
            default = (pod["metadata"].get("annotations") or {}).get(
                "kubectl.kubernetes.io/default-container"
            )
            if len(containers) > 1 and default not in containers:
                raise bad_request(
                    f"a container name must be specified for pod {name}, choose one of:"
                    f" [{' '.join(plain)}]"
                )
            asked = default if default is not None and default in containers else plain[0]
        elif asked not in containers:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        if not pod["spec"].get("nodeName"):
            return iter(())  # a cluster returns an empty log in this case, not an error
        log = self._log_of(pod, asked)
        return log.read(wanted=wanted, **options)

    def _log_of(self, pod: Object, name: str) -> ContainerLog:
        where = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
        found: list[Status] = [
            s
            for part in ("containerStatuses", "initContainerStatuses")
            for s in pod["status"].get(part) or []
            if s["name"] == name
        ]
        with self._lock:
            worker = self.workers.get(pod["metadata"]["uid"])
        if not found or worker is None:
            raise bad_request(f"{where} is not available")
        logs = worker.containers[name].logs
        status = found[0]
        waiting = status["state"].get("waiting")
        if waiting is not None and not logs:
            reason = waiting.get("reason", "")
            told = {
                "ErrImagePull": "image can't be pulled",
                "ImagePullBackOff": "trying and failing to pull image",
            }
            raise bad_request(f"{where} is waiting to start: {told.get(reason, reason)}")
        if not logs:
            raise bad_request(f"{where} is terminated")
        return logs[-1]


def _log_options(name: str, query: dict[str, str]) -> dict[str, Any]:
    causes = []
    numbers: dict[str, int] = {}
    for option, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        if option in query:
            try:
                numbers[option] = int(query[option])
            except ValueError:
                raise bad_request(
                    f'strconv.ParseInt: parsing "{query[option]}": invalid syntax'
                ) from None
            if numbers[option] < least:
                words = (
                    "must be greater than or equal to 0" if not least else "must be greater than 0"
                )
                causes.append(invalid_value(option, numbers[option], words))
    if "sinceSeconds" in query and "sinceTime" in query:
        causes.append(
            not_allowed(
                "sinceSeconds", "at most one of `sinceTime` or `sinceSeconds` may be specified"
            )
        )
    if "stream" in query:  # the feature gate PodLogsQuerySplitStreams is off
        causes.append(not_allowed("stream", "may not be specified"))
    since = 0
    if "sinceTime" in query:
        since = _seconds(query["sinceTime"]) * 1_000_000_000
    if causes:
        raise invalid("PodLogOptions", "", name, causes)
    if "sinceSeconds" in numbers:
        since = time.time_ns() - numbers["sinceSeconds"] * 1_000_000_000
    return {
        "since": since,
        "tail": numbers.get("tailLines"),
        "limit": numbers.get("limitBytes"),
        "timestamps": query.get("timestamps") in ("true", "True", "1"),
        "follow": query.get("follow") in ("true", "True", "1"),
    }


def _seconds(text: str) -> int:
    """Return a time in seconds since 1970, without the fraction, as it reaches the kubelet."""
    cut = text.partition(".")
    zone = cut[2].lstrip("0123456789") if cut[1] else ""
    try:
        found = datetime.fromisoformat((cut[0] + zone).replace("Z", "+00:00").replace(" ", "+"))
        if found.tzinfo is None:
            raise ValueError("it has no zone")
        return int(found.timestamp())
    except ValueError:
        raise bad_request(
            f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse'
        ) from None
