"""One pod: its containers as processes of this machine, and its status."""

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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8s_double import identity
from k8s_double.controllers.scheduling import set_condition
from k8s_double.kinds import PODS, SERVICE_ACCOUNTS
from k8s_double.node import sequences
from k8s_double.node.container_logs import ContainerLog
from k8s_double.node.environment import PATH, ConfigError, expanded, variables, write_config_maps
from k8s_double.store import Object, copied, now

if TYPE_CHECKING:
    from k8s_double.node.kubelet import Kubelet

Status = dict[str, Any]

#: Programs that the image busybox lacks, although this machine has them.
NOT_IN_BUSYBOX = frozenset({"bash", "perl", "python", "python3"})
#: The part of a log that becomes a termination message, in lines and bytes.
MESSAGE_LINES, MESSAGE_BYTES = 80, 2048


class Stopped(Exception):
    """Raised in the thread of a worker when the worker's pod must end."""


class Container:
    """The runs of one container of a pod."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.logs: list[ContainerLog] = []
        self.process: subprocess.Popen[bytes] | None = None

    def told(self, state: Status, *, ready: bool = False) -> Status:
        """Return the container's status in the form of the API."""
        running = "running" in state
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": "" if "waiting" in state else f"double://{self.spec['image']}",
            "state": state,
            "lastState": {},
            "ready": ready and running,
            "started": running,
            "restartCount": 0,
            **({"containerID": f"double://{uuid.uuid4().hex}"} if running else {}),
        }


class Worker(threading.Thread):
    """The thread that runs one pod."""

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
        self.is_late = False
        self._token = ""
        self._stop = threading.Event()
        self._gone = threading.Event()
        self._lock = threading.Lock()
        self._rotating = threading.Lock()

    # Methods with which the kubelet ends the pod.

    def end(self, grace: float) -> None:
        """Delete the pod: its processes get SIGTERM, and SIGKILL after ``grace`` seconds."""
        self.grace = grace
        if self._stop.is_set():
            return
        self._stop.set()
        if self.pretend or not self.is_alive():
            threading.Thread(target=self._finish_deleted, daemon=True).start()

    def kill(self) -> None:
        """End all processes at once, because the pod's object was deleted or the double ends."""
        self._gone.set()
        self._stop.set()
        for container in self.containers.values():
            _signal(container.process, signal.SIGKILL)
            for log in container.logs:
                log.wake()
        if self.pretend:
            self.close_logs()

    # Methods for sequences of states.

    def sleep(self, seconds: float) -> None:
        """Wait; raise Stopped if the pod must end during the wait."""
        if self._stop.wait(seconds):
            raise Stopped

    def change(self, change: Callable[[Object], object]) -> None:
        """Change the stored pod by a function, unless a new pod has taken the pod's name."""

        def own(obj: Object) -> None:
            if obj["metadata"]["uid"] == self.uid:
                change(obj)

        self.store.mutate(PODS, self.namespace, self.pod_name, own)

    def event(self, reason: str, message: str, type_: str = "Normal", container: str = "") -> None:
        path = f"spec.containers{{{container}}}" if container else ""
        self.store.event(PODS, self.pod, reason, message, type_, field=path)

    def wait_states(self, reason: str, message: str = "") -> None:
        """Set the containers to waiting, with a reason."""
        waiting = {"reason": reason, **({"message": message} if message else {})}

        def change(obj: Object) -> None:
            self._begin(obj)
            for part, containers in self._parts():
                obj["status"][part] = [c.told({"waiting": dict(waiting)}) for c in containers]

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
        """Set the containers and the pod to ended."""

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
            obj["status"]["containerStatuses"] = [c.told({"terminated": ended}) for c in self.main]
            self._over(obj, phase)
            for key, value in (("reason", pod_reason), ("message", pod_message)):
                if value:
                    obj["status"][key] = value

        self.change(change)

    def run_states(self) -> None:
        """Set the containers to running."""

        def change(obj: Object) -> None:
            self._begin(obj)
            state = {"running": {"startedAt": now()}}
            obj["status"]["containerStatuses"] = [
                c.told(dict(state), ready=True) for c in self.main
            ]
            self._ready(obj)

        self.change(change)

    def print(self, lines: list[str]) -> None:
        """Add lines to the log of the first container."""
        container = self.main[0]
        if not container.logs:
            container.logs.append(self._new_log())
        container.logs[-1].add("stdout", "".join(f"{line}\n" for line in lines).encode())

    def close_logs(self) -> None:
        for container in self.containers.values():
            for log in container.logs:
                log.close()

    # Methods that run the pod.

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

    def _over_deadline(self, obj: Object) -> None:
        self._over(obj, "Failed")
        words = "Pod was active on the node longer than the specified deadline"
        obj["status"].update(reason="DeadlineExceeded", message=words)

    def _pull(self) -> None:
        """Record that the node has the images; if one is missing, wait until the pod is deleted.

        An image with the pull policy ``Always`` counts as missing, because there is no registry.
        """
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
        for container in self.init:
            if self._run_container(container, "initContainerStatuses") != 0:
                self.change(lambda obj: self._over(obj, "Failed"))
                return
        codes: dict[str, int] = {}

        def run(container: Container) -> None:
            with contextlib.suppress(Stopped):
                codes[container.name] = self._run_container(container, "containerStatuses")

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
        self.is_late = True
        self.end(float(self.pod["spec"]["terminationGracePeriodSeconds"]))

    def _run_container(self, container: Container, part: str) -> int:
        """Run a container until it has ended; return its exit code.

        The double restarts no container: all pods of TorchX have ``restartPolicy: Never``.
        """
        code: int = self._run_once(container, part)["exitCode"]
        if self._stop.is_set():
            raise Stopped
        return code

    def _tell(self, container: Container, part: str, state: Status) -> None:
        def change(obj: Object) -> None:
            status = obj["status"]
            for i, found in enumerate(status.get(part) or []):
                if found["name"] == container.name:
                    status[part][i] = container.told(state, ready=True)
            if part != "containerStatuses":
                return
            states = [s["state"] for s in status[part]]
            if any("running" in s for s in states):
                status["phase"] = "Running"
            if all("running" in s for s in states):
                self._ready(obj)

        self.change(change)

    def _run_once(self, container: Container, part: str) -> Status:
        begun = now()
        while True:
            try:
                env = self._environment(container)
                mounts = write_config_maps(
                    self.store, self.pod, container.spec, self.folder / "volumes"
                )
                break
            except ConfigError as e:
                self._tell(
                    container,
                    part,
                    {"waiting": {"reason": "CreateContainerConfigError", "message": str(e)}},
                )
                self.event("Failed", f"Error: {e}", "Warning", container.name)
                self.sleep(0.5)
        self.event("Created", f"Created container: {container.name}", container=container.name)
        log = self._new_log()
        spec = container.spec
        words = [*(spec.get("command") or ["sh", "-c", "true"]), *(spec.get("args") or [])]
        argv = [mounts.get(word, word) for word in (expanded(word, env) for word in words)]
        folder = self._working_folder(container)
        try:
            if spec["image"].startswith("busybox:") and argv[0] in NOT_IN_BUSYBOX:
                raise FileNotFoundError(argv[0])
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
            return self._not_started(container, part, argv[0], e)
        container.logs.append(log)
        running = {"running": {"startedAt": begun}}
        self._tell(container, part, running)
        self.event("Started", f"Started container {container.name}", container=container.name)
        code = self._watch(process, log)
        ended = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": begun,
            "finishedAt": now(),
            "containerID": f"double://{self.uid}/{container.name}",
        }
        if code and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            ended["message"] = log.tail(MESSAGE_LINES, MESSAGE_BYTES)
        if not self._gone.is_set():
            self._tell(container, part, {"terminated": ended})
        log.close()
        return ended

    def _not_started(
        self,
        container: Container,
        part: str,
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
        self._tell(container, part, {"terminated": ended})
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
            **self._account(),
            **variables(self.store, pod, container.spec, self.kubelet.server),
        }

    # Methods for the service account.

    def _account(self) -> dict[str, str]:
        """Return the variable with the folder of the pod's token, if the pod has a token."""
        spec, kubelet = self.pod["spec"], self.kubelet
        found = self.store.find(SERVICE_ACCOUNTS, self.namespace, spec["serviceAccountName"]) or {}
        mounted = spec.get("automountServiceAccountToken")
        if mounted is None:
            mounted = found.get("automountServiceAccountToken", True)
        if not mounted or kubelet.ca is None:
            return {}
        self.rotate(first=True)
        return {identity.ACCOUNT_VARIABLE: str(self._account_folder)}

    @property
    def _account_folder(self) -> Path:
        return self.folder / "serviceaccount"

    def rotate(self, *, first: bool = False) -> None:
        """Give the pod a new token, and revoke its old token.

        Args:
            first: Whether this is the pod's first token. With True, nothing is done if the pod has
                a token; with False, nothing is done if it has none.
        """
        with self._rotating:  # containers start at the same time and share the token
            if bool(self._token) == first or self.kubelet.ca is None:
                return
            old, self._token = self._token, identity.new_token()
            user = f"{identity.ACCOUNT}{self.namespace}:{self.pod['spec']['serviceAccountName']}"
            self.kubelet.tokens[self._token] = user
            folder = self._account_folder
            identity.write_account(folder, self._token, self.namespace, self.kubelet.ca)
            self.kubelet.tokens.pop(old, None)

    def revoke(self) -> None:
        """Revoke the token of an ended pod."""
        self.kubelet.tokens.pop(self._token, None)

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

    def _new_log(self) -> ContainerLog:
        kubelet = self.kubelet
        return ContainerLog(kubelet.log_resolution, kubelet.log_at_once)

    def _watch(self, process: subprocess.Popen[bytes], log: ContainerLog) -> int:
        """Read a process's output until it has ended; end the process with its pod."""
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
                    # all processes of a container end with its first process
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
        """Set the final status, and remove the pod if it was deleted."""
        self.close_logs()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._gone.is_set():
            return
        pod = self.store.find(PODS, self.namespace, self.pod_name)
        if pod is None or pod["metadata"]["uid"] != self.uid:
            return
        if self.is_late:
            self.change(self._over_deadline)
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
