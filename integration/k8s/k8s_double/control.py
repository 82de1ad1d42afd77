"""The calls with which tests control a double: the public methods of :class:`Control`.

Tests in another process call these methods through :class:`k8s_double.handle.Double`. The methods
have their own port, which also responds while the API is down.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from k8s_double import identity
from k8s_double.cluster import Cluster
from k8s_double.controllers import pod_gc
from k8s_double.controllers.scheduling import NODE, set_condition
from k8s_double.kinds import BY_KEY, KINDS, NODES, PODS
from k8s_double.server import websocket
from k8s_double.server.admission import Denial, Fault, Webhook


class Control:
    """Controls a cluster.

    Args:
        cluster: The cluster.
        folder: Folder of the kubeconfigs.
        tls: Whether the server uses TLS.
    """

    def __init__(self, cluster: Cluster, folder: Path, *, tls: bool) -> None:
        self.cluster = cluster
        self.folder = folder
        self.tls = tls
        self.ended = threading.Event()

    # Methods for the server.

    def restart(self, seconds: float = 0.5, forget: bool = False) -> None:
        """Close all connections, refuse new ones for some seconds, and serve again.

        Args:
            seconds: How long the server is down.
            forget: Whether watches that continue from an earlier version get 410.
        """
        self.cluster.front.down()
        time.sleep(seconds)
        if forget:
            self.cluster.store.forget()
        self.cluster.front.up()

    def down(self) -> None:
        """Close all connections and refuse new ones."""
        self.cluster.front.down()

    def up(self) -> None:
        """Serve again, on the same port."""
        self.cluster.front.up()

    def cut(self, clean: bool = True) -> None:
        """End the open streams of logs and watches.

        Args:
            clean: Whether the streams end as if they were complete; otherwise, the connection
                breaks in the middle of the response.
        """
        self.cluster.front.cut(clean=clean)

    def forget(self) -> None:
        """Let watches that continue from an earlier version expire, with 410."""
        self.cluster.store.forget()

    def expire_pages(self) -> None:
        """Let the remaining pages of all lists expire, with 410."""
        self.cluster.api.expire_pages()

    def fault(self, code: int, **how: Any) -> None:
        """Add a fault; see :class:`k8s_double.server.admission.Fault`."""
        self.cluster.admission.faults.append(Fault(code, **how))

    def fault_free(self) -> None:
        """Remove all faults."""
        self.cluster.admission.faults.clear()

    def webhook(self, name: str, message: str, **how: Any) -> None:
        """Add a webhook that refuses objects; see :class:`k8s_double.server.admission.Webhook`."""
        self.cluster.admission.webhooks.append(Webhook(name, message, **how))

    def serve_sessions(self, protocols: list[str]) -> None:
        """Set which versions of the protocol for commands and ports of pods are accepted."""
        self.cluster.front.session_protocols = protocols

    def deny(self, verb: str, resource: str, **how: Any) -> None:
        """Take a right from users; see :class:`k8s_double.server.admission.Denial`."""
        self.cluster.admission.denials.append(Denial(verb, resource, **how))

    def serve_operators(self, names: list[str]) -> None:
        """Serve the resources of the given operators only: of jobset, volcano, mcad and kueue."""
        self.cluster.api.operators = set(names)

    # Methods for users and tokens.

    def kubeconfig(self, name: str = "kubeconfig", user: str = identity.USER, **how: Any) -> str:
        """Write a kubeconfig with a new token; return its path."""
        token = identity.new_token()
        self.cluster.front.tokens[token] = user
        return self._write(name, token, **how)

    def rotate(self, name: str = "kubeconfig", **how: Any) -> str:
        """Revoke the tokens of users, and write a kubeconfig with a new one; return its path.

        The tokens of pods stay valid.

        Args:
            name: Name of the file.
            **how: Arguments of :func:`k8s_double.identity.write_kubeconfig`.
        """
        tokens = self.cluster.front.tokens
        for token, user in list(tokens.items()):
            if not user.startswith(identity.ACCOUNT):
                tokens.pop(token, None)
        return self.kubeconfig(name, **how)

    def rotate_accounts(self) -> None:
        """Give all pods new tokens, and revoke their old tokens."""
        self.cluster.kubelet.rotate_accounts()

    def _write(self, name: str, token: str, **how: Any) -> str:
        scheme = "https" if self.tls else "http"
        url = f"{scheme}://127.0.0.1:{self.cluster.front.port}"
        ca = self.folder / "ca.pem" if self.tls else None
        return str(identity.write_kubeconfig(self.folder / name, url, token, ca=ca, **how))

    # Methods for the node and the operators.

    def play(self, sequence: str, **row: Any) -> None:
        """Play a sequence of states on some pods; see :mod:`k8s_double.node.sequences`."""
        self.cluster.kubelet.sequences.add({"sequence": sequence, **row})

    def stop_playing(self) -> None:
        """Remove all sequences, and try again to bind waiting pods."""
        self.cluster.kubelet.sequences.clear()
        self.cluster.look_again()

    def play_operator(self, kind: str, sequence: str = "", pods: bool = False, **row: Any) -> None:
        """Play the states of an operator's objects; see :mod:`k8s_double.controllers.operators`."""
        self.cluster.operators.add({"kind": kind, "sequence": sequence, "pods": pods, **row})

    def kueue(self, on: bool = True) -> None:
        """Turn Kueue on or off. If it is on, it manages Jobs that name a queue."""
        self.cluster.operators.kueue = on

    def admit(self, namespace: str = "default", most: int | None = None) -> int:
        """Let Kueue admit Workloads of a namespace that wait; return how many were admitted.

        Args:
            namespace: The namespace.
            most: For how many Workloads the quota is enough; None means for all.
        """
        return self.cluster.operators.admit(namespace, most)

    def log_resolution(self, nanoseconds: int) -> None:
        """Make the clock of new logs coarse, so that many lines have the same time."""
        self.cluster.kubelet.log_resolution = nanoseconds

    def log_at_once(self, on: bool = True) -> None:
        """Store text in new logs before its newline, as CRI-O does."""
        self.cluster.kubelet.log_at_once = on

    def pod_gc(self, seconds: float) -> None:
        """Set the pause between two collections of deleted pods without a node, in seconds."""
        self.cluster.pod_gc.period = seconds

    def pause_jobs(self, on: bool = True) -> None:
        """Pause or resume the controller of Jobs; existing pods continue to run."""
        self.cluster.jobs_paused = on

    def lose_node(self) -> None:
        """Mark the node as lost, as the node controller does when a node does not answer.

        Only the condition Ready of the node and of its pods changes, because the node itself would
        update the other conditions of the pods. The double does not evict the pods afterwards.
        """
        store = self.cluster.store

        def unknown(obj: dict[str, Any]) -> None:
            why = "NodeStatusUnknown"
            set_condition(obj, "Ready", "Unknown", why, "Kubelet stopped posting node status.")

        def unready(obj: dict[str, Any]) -> None:
            set_condition(obj, "Ready", "False")

        store.mutate(NODES, "", NODE, unknown)
        for pod in store.all(PODS):
            if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running":
                store.mutate(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], unready)
                store.event(
                    PODS, pod, "NodeNotReady", "Node is not ready", "Warning", component="node"
                )

    def collect(self, namespace: str, name: str) -> None:
        """Delete a pod of a deleted node, as the garbage collector of pods does."""

        def fail(obj: dict[str, Any]) -> None:
            words = "PodGC: node no longer exists"
            set_condition(obj, "DisruptionTarget", "True", "DeletionByPodGC", words)
            obj["status"]["phase"] = "Failed"

        self.cluster.store.mutate(PODS, namespace, name, fail)
        self.cluster.api.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})

    # Methods for objects.

    def namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Add a namespace with its service account."""
        self.cluster.add_namespace(name, labels or {})

    def create(self, key: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object, and return it as the API stores it."""
        return self.cluster.api.create(BY_KEY[key], namespace, body)[0]

    def objects(self, key: str, namespace: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind; an empty ``namespace`` means all namespaces."""
        return self.cluster.store.all(BY_KEY[key], namespace)

    def set_status(
        self, key: str, namespace: str, name: str, status: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Set fields of an object's status; return the object, or None if it does not exist."""
        return self.cluster.store.mutate(
            BY_KEY[key], namespace, name, lambda obj: obj.setdefault("status", {}).update(status)
        )

    def left(self) -> list[str]:
        """Return the objects that tests created, as ``plural/namespace/name``."""
        furniture = {
            "namespaces",
            "nodes",
            "events",
            "queues.scheduling.volcano.sh",
        }
        return [
            f"{kind.key}/{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
            for kind in KINDS
            if kind.key not in furniture
            for obj in self.cluster.store.all(kind)
            if (kind.key, obj["metadata"]["name"]) != ("serviceaccounts", "default")
        ]

    # Methods that return observations.

    def requests(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the requests so far, without the first ``since`` requests."""
        return self.cluster.front.requests[since:]

    def counted(self) -> int:
        """Return the number of requests so far."""
        return len(self.cluster.front.requests)

    def streams(self) -> dict[str, int]:
        """Return how many streams are open (``now``) and were open at most at once (``most``)."""
        return {"now": self.cluster.front.streams, "most": self.cluster.front.most_streams}

    def warnings(self) -> list[str]:
        """Return the warnings: unknown fields, and Jobs deleted without a policy."""
        return self.cluster.warnings

    def problems(self) -> list[str]:
        """Return the errors in the double itself."""
        return self.cluster.problems

    def reset(self) -> None:
        """Delete all objects that tests created, and undo the settings except :meth:`log_at_once`.

        Write a kubeconfig with a new token, and revoke all other tokens.
        """
        cluster = self.cluster
        cluster.admission.faults.clear()
        cluster.admission.webhooks.clear()
        cluster.admission.denials.clear()
        cluster.front.session_protocols = [websocket.V5, websocket.V4]
        cluster.kubelet.sequences.clear()
        cluster.operators.rows.clear()
        cluster.operators.kueue = False
        cluster.jobs_paused = False
        cluster.pod_gc.period = pod_gc.PERIOD
        cluster.kubelet.log_resolution = 1
        cluster.kubelet.log_at_once = False
        self.serve_operators(["jobset", "volcano", "mcad", "kueue"])
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        self.set_status(NODES.key, "", NODE, {"conditions": ready})
        if not cluster.front.is_up:
            cluster.front.up()
        kept = {"nodes", "queues.scheduling.volcano.sh"}
        for _ in range(2):  # a controller may create an object during the first pass
            for kind in reversed(KINDS):
                for obj in cluster.store.all(kind):
                    name = obj["metadata"]["name"]
                    namespace = obj["metadata"].get("namespace", "")
                    account = kind.key == "serviceaccounts" and name == "default"
                    of = namespace if account else name if kind.key == "namespaces" else ""
                    if kind.key in kept or of in cluster.namespaces:
                        continue
                    cluster.store.remove(kind, namespace, name)
        cluster.front.tokens.clear()
        self.kubeconfig()
        cluster.front.requests.clear()
        cluster.front.most_streams = 0
        cluster.warnings.clear()
        cluster.problems.clear()

    def end(self) -> None:
        """End the double."""
        self.ended.set()


def serve(control: Control, secret: str) -> int:
    """Serve the methods of a control on a new port to clients with the secret; return the port."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code, answer = 200, None
            if self.headers.get("X-Double") != secret:
                code, answer = 403, "no"
            else:
                try:
                    name = self.path.strip("/")
                    if name.startswith("_"):
                        raise AttributeError(name)
                    answer = getattr(control, name)(**json.loads(body))
                except Exception:
                    code, answer = 500, traceback.format_exc()
            text = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return int(server.server_address[1])
