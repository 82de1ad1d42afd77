"""Runs each pod's containers as processes of this machine, and tells what becomes of them."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from k8s_double import sequences
from k8s_double.container_logs import ContainerLog
from k8s_double.environment import PATH, ConfigError, expanded, variables
from k8s_double.errors import (
    ApiError,
    bad_request,
    invalid,
    invalid_value,
    not_allowed,
    unsupported_value,
)
from k8s_double.kinds import PODS
from k8s_double.scheduling import set_condition
from k8s_double.store import Change, Object, Store, copied, now

Status = dict[str, Any]


class Stopped(Exception):
    """The pod is to end."""


class Container:
    """The runs of one container of a pod."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.logs: list[ContainerLog] = []
        self.process: subprocess.Popen[bytes] | None = None

    def told(self, restarts: int, state: Status, last: Status, *, ready: bool = False) -> Status:
        """Returns the container's status."""
        running = "running" in state
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": ""
            if "waiting" in state and not restarts
            else f"double://{self.spec['image']}",
            "state": state,
            "lastState": last,
            "ready": ready and running,
            "started": running,
            "restartCount": restarts,
            **({"containerID": f"double://{uuid.uuid4().hex}"} if running else {}),
        }


class Kubelet:
    """The kubelet of the one node.

    Args:
        store: where the pods are
        folder: for the containers' folders
        images: names of those the node has; there is no registry to pull others from
        programs: a folder for each image, put first on the PATH of its containers
        restart_delay: seconds before a container is started again, doubled each time
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        images: list[str],
        programs: dict[str, str],
        restart_delay: float = 0.2,
    ) -> None:
        self.store = store
        self.folder = folder
        self.images = images
        self.programs = programs
        self.restart_delay = restart_delay
        self.log_resolution = 1
        self.log_skew = 0
        # the feature gate PodLogsQuerySplitStreams, which is off in 1.32
        self.split_streams = False
        self.sequences = sequences.Table()
        self.workers: dict[str, Worker] = {}
        self._lock = threading.Lock()

    def changed(self, change: Change) -> None:
        """Looks at a change of a pod: a new one here is started, one to be deleted is ended."""
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
            with self._lock:
                self.workers.pop(uid, None)
        elif pod["metadata"].get("deletionTimestamp"):
            worker.end(pod["metadata"].get("deletionGracePeriodSeconds", 30))

    def close(self) -> None:
        """Ends all processes."""
        with self._lock:
            workers = list(self.workers.values())
        for worker in workers:
            worker.kill()
        for worker in workers:
            if worker.is_alive():
                worker.join(5)

    # -- logs

    def log(
        self, pod: Object, query: dict[str, str], wanted: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Returns a container's log as asked.

        Raises:
            ApiError: 400 where there is none yet, 422 for options that can't be
        """
        name = pod["metadata"]["name"]
        options = _log_options(name, query, split=self.split_streams)
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
            return iter(())  # as it is: nothing, and success
        log = self._log_of(pod, asked, previous=query.get("previous") == "true")
        return log.read(wanted=wanted, **options)

    def _log_of(self, pod: Object, name: str, *, previous: bool) -> ContainerLog:
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
        if previous:
            if "terminated" not in status["lastState"] or not logs:
                raise bad_request(f"previous terminated {where} not found")
            return logs[-1] if "waiting" in status["state"] or len(logs) == 1 else logs[-2]
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


class Worker(threading.Thread):
    """One pod."""

    def __init__(self, kubelet: Kubelet, pod: Object) -> None:
        super().__init__(daemon=True, name=f"pod {pod['metadata']['name']}")
        self.kubelet = kubelet
        self.store = kubelet.store
        self.pod = copied(pod)
        self.namespace: str = pod["metadata"]["namespace"]
        self.pod_name: str = pod["metadata"]["name"]
        self.uid: str = pod["metadata"]["uid"]
        self.folder = kubelet.folder / "pods" / self.uid
        spec = pod["spec"]
        self.init = [Container(c) for c in spec.get("initContainers") or []]
        self.main = [Container(c) for c in spec["containers"]]
        self.containers = {c.name: c for c in [*self.init, *self.main]}
        self.grace = 30.0
        self.pretend = False
        self._stop = threading.Event()
        self._gone = threading.Event()
        self._lock = threading.Lock()

    # -- what others ask of it

    def end(self, grace: float) -> None:
        """The pod is to be deleted: its processes get SIGTERM, and SIGKILL after ``grace``."""
        self.grace = grace
        if self._stop.is_set():
            return
        self._stop.set()
        if self.pretend or not self.is_alive():
            threading.Thread(target=self._finish_deleted, daemon=True).start()

    def kill(self) -> None:
        """The pod's object is gone, or the node."""
        self._gone.set()
        self._stop.set()
        for container in self.containers.values():
            _signal(container.process, signal.SIGKILL)
            for log in container.logs:
                log.wake()
        if self.pretend:
            self.close_logs()

    # -- what sequences use

    def sleep(self, seconds: float) -> None:
        """Waits; raises Stopped when the pod is to end meanwhile."""
        if self._stop.wait(seconds):
            raise Stopped

    def change(self, change: Callable[[Object], object]) -> None:
        """Changes the pod's status."""

        def own(obj: Object) -> None:
            if obj["metadata"]["uid"] == self.uid:
                change(obj)

        self.store.mutate(PODS, self.namespace, self.pod_name, own)

    def event(self, reason: str, message: str, type_: str = "Normal", container: str = "") -> None:
        path = f"spec.containers{{{container}}}" if container else ""
        self.store.event(PODS, self.pod, reason, message, type_, field=path)

    def wait_states(self, reason: str, message: str = "") -> None:
        """Lets the containers wait with a reason."""
        waiting = {"reason": reason, **({"message": message} if message else {})}

        def change(obj: Object) -> None:
            self._begin(obj)
            for part, containers in self._parts():
                obj["status"][part] = [
                    c.told(0, {"waiting": dict(waiting)}, {}) for c in containers
                ]

        self.change(change)

    def end_states(
        self,
        phase: str,
        exit_code: int,
        reason: str,
        *,
        message: str = "",
        pod_reason: str = "",
        pod_message: str = "",
    ) -> None:
        """Ends the containers and the pod with these words."""

        def change(obj: Object) -> None:
            self._begin(obj)
            started = obj["status"].get("startTime") or now()
            ended = {
                "exitCode": exit_code,
                "reason": reason,
                "startedAt": started,
                "finishedAt": now(),
                **({"message": message} if message else {}),
            }
            old = {
                s["name"]: s["restartCount"] for s in obj["status"].get("containerStatuses") or []
            }
            obj["status"]["containerStatuses"] = [
                c.told(old.get(c.name, 0), {"terminated": ended}, {}) for c in self.main
            ]
            self._over(obj, phase)
            for key, value in (("reason", pod_reason), ("message", pod_message)):
                if value:
                    obj["status"][key] = value

        self.change(change)

    def run_states(self) -> None:
        """Shows the containers running."""

        def change(obj: Object) -> None:
            self._begin(obj)
            state = {"running": {"startedAt": now()}}
            obj["status"]["containerStatuses"] = [
                c.told(0, dict(state), {}, ready=True) for c in self.main
            ]
            self._ready(obj)

        self.change(change)

    def print(self, lines: list[str]) -> None:
        """Puts lines in the log of the first container."""
        container = self.main[0]
        if not container.logs:
            container.logs.append(ContainerLog(self.kubelet.log_resolution, self.kubelet.log_skew))
        container.logs[-1].add("stdout", "".join(f"{line}\n" for line in lines).encode())

    def close_logs(self) -> None:
        for container in self.containers.values():
            for log in container.logs:
                log.close()

    # -- the pod's way

    def run(self) -> None:
        try:
            sequence = self.kubelet.sequences.take(self.pod)
            if sequence is None or sequences.play(sequence, self):
                self._pull()
                self._run_pod()
        except Stopped:
            pass
        if self._stop.is_set():
            self._finish_deleted()

    def _parts(self) -> list[tuple[str, list[Container]]]:
        found = [("containerStatuses", self.main)]
        if self.init:
            found.append(("initContainerStatuses", self.init))
        return found

    def _begin(self, obj: Object) -> None:
        status = obj["status"]
        status.setdefault("startTime", now())
        status.setdefault("hostIP", "10.0.0.1")
        status.setdefault("hostIPs", [{"ip": "10.0.0.1"}])
        address = f"10.244.{int(self.uid[:2], 16)}.{int(self.uid[2:4], 16)}"
        status.setdefault("podIP", address)
        status.setdefault("podIPs", [{"ip": address}])
        for type_ in ("Initialized", "Ready", "ContainersReady"):
            if not any(c["type"] == type_ for c in status.get("conditions") or []):
                ready = type_ == "Initialized"
                why = "" if ready else "ContainersNotReady"
                names = " ".join(c.name for c in self.main)
                message = "" if ready else f"containers with unready status: [{names}]"
                set_condition(obj, type_, "True" if ready else "False", why, message)

    @staticmethod
    def _ready(obj: Object) -> None:
        obj["status"]["phase"] = "Running"
        set_condition(obj, "Ready", "True")
        set_condition(obj, "ContainersReady", "True")

    @staticmethod
    def _over(obj: Object, phase: str) -> None:
        obj["status"]["phase"] = phase
        why = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        set_condition(obj, "Ready", "False", why)
        set_condition(obj, "ContainersReady", "False", why)

    def _pull(self) -> None:
        """Looks whether the node has the images; waits for ever where it hasn't."""
        for container in [*self.init, *self.main]:
            image, policy = container.spec["image"], container.spec["imagePullPolicy"]
            if image in self.kubelet.images and policy != "Always":
                self.event(
                    "Pulled",
                    f'Container image "{image}" already present on machine',
                    container=container.name,
                )
                continue
            sequences.no_image(self, container.name, image, policy)

    def _run_pod(self) -> None:
        self.wait_states("PodInitializing" if self.init else "ContainerCreating")
        restart = self.pod["spec"]["restartPolicy"]
        for container in self.init:
            again = "OnFailure" if restart == "Always" else restart
            if self._run_container(container, "initContainerStatuses", again) != 0:
                self.change(lambda obj: self._over(obj, "Failed"))
                return
        codes: dict[str, int] = {}

        def run(container: Container) -> None:
            with contextlib.suppress(Stopped):
                codes[container.name] = self._run_container(container, "containerStatuses", restart)

        threads = [threading.Thread(target=run, args=(c,), daemon=True) for c in self.main[1:]]
        for thread in threads:
            thread.start()
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            timer = threading.Timer(deadline, self._deadline)
            timer.daemon = True
            timer.start()
        run(self.main[0])
        for thread in threads:
            thread.join()
        if self._stop.is_set() or len(codes) < len(self.main):
            raise Stopped
        phase = "Failed" if any(codes.values()) else "Succeeded"
        self.change(lambda obj: self._over(obj, phase))

    def _deadline(self) -> None:
        self.end_states(
            "Failed",
            137,
            "Error",
            pod_reason="DeadlineExceeded",
            pod_message="Pod was active on the node longer than the specified deadline",
        )
        self._stop.set()
        for container in self.containers.values():
            _signal(container.process, signal.SIGKILL)

    def _run_container(self, container: Container, part: str, restart: str) -> int:
        """Runs a container until it is over; returns its exit code."""
        restarts = 0
        last: Status = {}
        delay = self.kubelet.restart_delay
        while True:
            ended = self._run_once(container, part, restarts, last)
            code: int = ended["exitCode"]
            if self._stop.is_set():
                raise Stopped
            again = restart == "Always" or (restart == "OnFailure" and code != 0)
            if not again:
                return code
            restarts += 1
            last = {"terminated": ended}
            waiting = {
                "reason": "CrashLoopBackOff",
                "message": f"back-off {int(delay * 50)}s restarting failed"
                f" container={container.name} pod={self.pod_name}_{self.namespace}({self.uid})",
            }
            self._tell(container, part, restarts, {"waiting": waiting}, last)
            self.event(
                "BackOff",
                f"Back-off restarting failed container {container.name} in pod"
                f" {self.pod_name}_{self.namespace}({self.uid})",
                "Warning",
                container.name,
            )
            self.sleep(delay)
            delay *= 2

    def _tell(
        self, container: Container, part: str, restarts: int, state: Status, last: Status
    ) -> None:
        def change(obj: Object) -> None:
            status = obj["status"]
            for i, found in enumerate(status.get(part) or []):
                if found["name"] == container.name:
                    status[part][i] = container.told(restarts, state, last, ready=True)
            if part != "containerStatuses":
                return
            states = [s["state"] for s in status[part]]
            if any("running" in s for s in states) or restarts:
                status["phase"] = "Running"
            if all("running" in s for s in states):
                self._ready(obj)

        self.change(change)

    def _run_once(self, container: Container, part: str, restarts: int, last: Status) -> Status:
        begun = now()
        while True:
            try:
                env = self._environment(container)
                break
            except ConfigError as e:
                self._tell(
                    container,
                    part,
                    restarts,
                    {"waiting": {"reason": "CreateContainerConfigError", "message": str(e)}},
                    last,
                )
                self.event("Failed", f"Error: {e}", "Warning", container.name)
                self.sleep(0.5)
        self.event("Created", f"Created container: {container.name}", container=container.name)
        log = ContainerLog(self.kubelet.log_resolution, self.kubelet.log_skew)
        spec = container.spec
        words = [*(spec.get("command") or ["sh", "-c", "true"]), *(spec.get("args") or [])]
        argv = [expanded(word, env) for word in words]
        folder = self._working_folder(container)
        try:
            with self._lock:
                if self._stop.is_set():
                    raise Stopped
                process = container.process = subprocess.Popen(
                    argv,
                    env=env,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except (OSError, ValueError) as e:
            return self._not_started(container, part, restarts, last, argv[0], e)
        container.logs.append(log)
        running = {"running": {"startedAt": begun}}
        self._tell(container, part, restarts, running, last)
        self.event("Started", f"Started container {container.name}", container=container.name)
        code = self._watch(process, log)
        ended = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": begun,
            "finishedAt": now(),
            "containerID": f"double://{self.uid}/{container.name}/{restarts}",
        }
        if not self._gone.is_set():
            self._tell(container, part, restarts, {"terminated": ended}, last)
        log.close()
        return ended

    def _not_started(
        self,
        container: Container,
        part: str,
        restarts: int,
        last: Status,
        program: str,
        e: Exception,
    ) -> Status:
        why = "no such file or directory" if isinstance(e, FileNotFoundError) else str(e)
        where = f"stat {program}: {why}" if "/" in program else "executable file not found in $PATH"
        message = (
            "failed to create containerd task: failed to create shim task: OCI runtime create"
            " failed: runc create failed: unable to start container process: error during container"
            f' init: exec: "{program}": {where}: unknown'
        )
        ended = {
            "exitCode": 128,
            "reason": "StartError",
            "message": message,
            "startedAt": "1970-01-01T00:00:00Z",
            "finishedAt": now(),
        }
        self._tell(container, part, restarts, {"terminated": ended}, last)
        self.event("Failed", f"Error: {message}", "Warning", container.name)
        return ended

    def _environment(self, container: Container) -> dict[str, str]:
        pod = self.store.find(PODS, self.namespace, self.pod_name) or self.pod
        programs = self.kubelet.programs.get(container.spec["image"], "")
        hostname = self.pod["spec"].get("hostname") or self.pod_name[:63]
        return {
            "PATH": f"{programs}:{PATH}" if programs else PATH,
            "HOSTNAME": hostname,
            "HOME": "/root",
            **variables(self.store, pod, container.spec),
        }

    def _working_folder(self, container: Container) -> Path:
        root = self.folder / container.name
        root.mkdir(parents=True, exist_ok=True)
        asked = container.spec.get("workingDir")
        if not asked:
            return root
        if Path(asked).is_dir():
            return Path(asked)
        made = root / asked.lstrip("/")
        made.mkdir(parents=True, exist_ok=True)
        return made

    def _watch(self, process: subprocess.Popen[bytes], log: ContainerLog) -> int:
        """Reads a process's output until it has ended; ends it where the pod is to end."""
        assert process.stdout is not None
        assert process.stderr is not None
        deadline: float | None = None
        with selectors.DefaultSelector() as selector:
            for stream, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, stream)
            while True:
                for key, _ in selector.select(0.05):
                    data = os.read(key.fd, 1 << 20)
                    if data:
                        log.add(key.data, data)
                    else:
                        selector.unregister(key.fileobj)
                if self._stop.is_set() and deadline is None:
                    deadline = time.monotonic() + self.grace
                    _signal(process, signal.SIGTERM, group=False)
                late = deadline is not None and time.monotonic() >= deadline
                if late or self._gone.is_set():
                    _signal(process, signal.SIGKILL)
                if process.poll() is not None:
                    # the rest of a container ends with its first process
                    _signal(process, signal.SIGKILL)
                    for key in list(selector.get_map().values()):
                        while data := _read(key.fd):
                            log.add(key.data, data)
                    break
                if not selector.get_map():
                    time.sleep(0.005)
        process.stdout.close()
        process.stderr.close()
        code = process.returncode
        return code if code >= 0 else 128 - code

    def _finish_deleted(self) -> None:
        """Tells how the pod ended, and removes it where it was to be deleted."""
        self.close_logs()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._gone.is_set():
            return
        pod = self.store.find(PODS, self.namespace, self.pod_name)
        if pod is None or pod["metadata"]["uid"] != self.uid:
            return
        if pod["metadata"].get("deletionTimestamp"):
            self.event(
                "Killing", f"Stopping container {self.main[0].name}", container=self.main[0].name
            )
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                codes = [
                    (s["state"].get("terminated") or {}).get("exitCode")
                    for s in pod["status"].get("containerStatuses") or []
                ]
                if codes and None not in codes:
                    self.change(
                        lambda obj: self._over(obj, "Failed" if any(codes) else "Succeeded")
                    )
                else:
                    self.end_states("Failed", 137, "ContainerStatusUnknown")
            self.store.remove(PODS, self.namespace, self.pod_name)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""


def _signal(
    process: subprocess.Popen[bytes] | None, number: signal.Signals, *, group: bool = True
) -> None:
    if process is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(process.pid, number)
        elif process.poll() is None:
            os.kill(process.pid, number)


def _log_options(name: str, query: dict[str, str], *, split: bool) -> dict[str, Any]:
    causes = []
    numbers: dict[str, int] = {}
    for name, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        if name in query:
            try:
                numbers[name] = int(query[name])
            except ValueError:
                raise bad_request(
                    f'strconv.ParseInt: parsing "{query[name]}": invalid syntax'
                ) from None
            if numbers[name] < least:
                words = (
                    "must be greater than or equal to 0" if not least else "must be greater than 0"
                )
                causes.append(invalid_value(name, numbers[name], words))
    if "sinceSeconds" in query and "sinceTime" in query:
        causes.append(
            not_allowed(
                "sinceSeconds", "at most one of `sinceTime` or `sinceSeconds` may be specified"
            )
        )
    stream = query.get("stream", "All")
    if "stream" in query and not split:
        causes.append(not_allowed("stream", "may not be specified"))
    elif stream not in ("All", "Stdout", "Stderr"):
        causes.append(unsupported_value("stream", stream, ["All", "Stderr", "Stdout"]))
    elif stream != "All" and "tailLines" in query:
        words = "`tailLines` and specific `stream` are mutually exclusive for now"
        causes.append(not_allowed("tailLines", words))
    since = 0
    if "sinceTime" in query:
        since = _seconds(query["sinceTime"]) * 1_000_000_000
    if causes:
        raise invalid("PodLogOptions", "", name, causes)
    if "sinceSeconds" in numbers:
        since = time.time_ns() - numbers["sinceSeconds"] * 1_000_000_000
    return {
        "since": since,
        "stream": "" if stream == "All" else stream.lower(),
        "tail": numbers.get("tailLines"),
        "limit": numbers.get("limitBytes"),
        "timestamps": query.get("timestamps") in ("true", "True", "1"),
        "follow": query.get("follow") in ("true", "True", "1"),
    }


def _seconds(text: str) -> int:
    """Returns a time in whole seconds: finer ones don't reach the kubelet."""
    from datetime import datetime

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


__all__ = ["ApiError", "Kubelet", "Worker"]
