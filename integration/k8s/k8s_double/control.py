"""What tests steer: each public method of :class:`Control` is one thing to ask of the double.

They are called through :class:`k8s_double.handle.Double`, which is in another process, by a port of
their own, which answers also while the API is down.
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
from k8s_double.admission import Denial, Fault, Webhook
from k8s_double.cluster import Cluster
from k8s_double.kinds import BY_KEY, KINDS, NODES
from k8s_double.scheduling import NODE


class Control:
    """Steers a cluster.

    Args:
        cluster: which
        folder: where the kubeconfigs are
        tls: whether the front has TLS
    """

    def __init__(self, cluster: Cluster, folder: Path, *, tls: bool) -> None:
        self.cluster = cluster
        self.folder = folder
        self.tls = tls
        self.ended = threading.Event()

    # -- the server

    def restart(self, seconds: float = 0.5, forget: bool = False) -> None:
        """Breaks all connections, refuses others for some seconds, and is there again.

        Args:
            seconds: of being away
            forget: watches from before get 410
        """
        self.cluster.front.down()
        time.sleep(seconds)
        if forget:
            self.cluster.store.forget()
        self.cluster.front.up()

    def down(self) -> None:
        """Breaks all connections and refuses others."""
        self.cluster.front.down()

    def up(self) -> None:
        """Is there again, on the same port."""
        self.cluster.front.up()

    def cut(self, clean: bool = True) -> None:
        """Ends the open streams of logs and watches, in the middle or as if that was all."""
        self.cluster.front.cut(clean=clean)

    def forget(self) -> None:
        """Lets watches from before expire."""
        self.cluster.store.forget()

    def expire_pages(self) -> None:
        """Lets the next pages of lists expire."""
        self.cluster.api.expire_pages()

    def fault(self, code: int, **how: Any) -> None:
        """Answers some requests with a code; see :class:`k8s_double.admission.Fault`."""
        self.cluster.admission.faults.append(Fault(code, **how))

    def fault_free(self) -> None:
        """Ends the faults that are left."""
        self.cluster.admission.faults.clear()

    def webhook(self, name: str, message: str, **how: Any) -> None:
        """Adds a webhook that refuses; see :class:`k8s_double.admission.Webhook`."""
        self.cluster.admission.webhooks.append(Webhook(name, message, **how))

    def deny(self, verb: str, resource: str, **how: Any) -> None:
        """Takes a right away; see :class:`k8s_double.admission.Denial`."""
        self.cluster.admission.denials.append(Denial(verb, resource, **how))

    def serve_operators(self, names: list[str]) -> None:
        """Says which operators' resources exist: jobset, volcano, mcad, kueue."""
        self.cluster.api.operators = set(names)

    # -- users

    def kubeconfig(self, name: str = "kubeconfig", user: str = identity.USER, **how: Any) -> str:
        """Writes a kubeconfig with a token of its own; returns its path."""
        token = identity.new_token()
        self.cluster.front.tokens[token] = user
        return self._write(name, token, **how)

    def rotate(self, name: str = "kubeconfig", revoke: bool = True, **how: Any) -> str:
        """Writes a kubeconfig again with a new token, and revokes the user's old ones."""
        tokens = self.cluster.front.tokens
        if revoke:
            self.revoke()
        token = identity.new_token()
        tokens[token] = identity.USER
        return self._write(name, token, **how)

    def revoke(self) -> None:
        """Revokes all tokens of users; those of pods stay."""
        tokens = self.cluster.front.tokens
        for token, user in list(tokens.items()):
            if not user.startswith(identity.ACCOUNT):
                tokens.pop(token, None)

    def rotate_accounts(self) -> None:
        """Gives all pods new tokens, and revokes those that they had."""
        self.cluster.kubelet.rotate_accounts()

    def _write(self, name: str, token: str, **how: Any) -> str:
        scheme = "https" if self.tls else "http"
        url = f"{scheme}://127.0.0.1:{self.cluster.front.port}"
        ca = self.folder / "ca.pem" if self.tls else None
        return str(identity.write_kubeconfig(self.folder / name, url, token, ca=ca, **how))

    # -- the node and the operators

    def play(self, sequence: str, **row: Any) -> None:
        """Plays a sequence on some pods; see :mod:`k8s_double.sequences`."""
        self.cluster.kubelet.sequences.add({"sequence": sequence, **row})

    def stop_playing(self) -> None:
        """Lets pods be as they are again; those that could not be bound are tried."""
        self.cluster.kubelet.sequences.clear()
        self.cluster.look_again()

    def play_operator(self, kind: str, sequence: str = "", pods: bool = False, **row: Any) -> None:
        """Plays an operator; see :mod:`k8s_double.operators`."""
        self.cluster.operators.add({"kind": kind, "sequence": sequence, "pods": pods, **row})

    def kueue(self, on: bool = True) -> None:
        """Lets Kueue manage Jobs that name a queue."""
        self.cluster.operators.kueue = on

    def admit(self, namespace: str = "default") -> int:
        """Lets Kueue admit the workloads that wait."""
        return self.cluster.operators.admit(namespace)

    def log_resolution(self, nanoseconds: int) -> None:
        """Makes the clock of new logs coarse: many lines get one time."""
        self.cluster.kubelet.log_resolution = nanoseconds

    def log_skew(self, nanoseconds: int) -> None:
        """Lets the times of stderr be behind those of stdout in new logs."""
        self.cluster.kubelet.log_skew = nanoseconds

    def split_streams(self, on: bool = True) -> None:
        """Turns the feature on by which a log can be asked for by stream."""
        self.cluster.kubelet.split_streams = on

    def capacity(self, **amounts: str) -> None:
        """Changes what the node has."""

        self._capacity({**self.cluster.capacity, **amounts})

    def _capacity(self, amounts: dict[str, str]) -> None:
        status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
        self.set_status(NODES.key, "", NODE, status)

    # -- objects

    def namespace(self, name: str) -> None:
        """Adds a namespace with its service account."""
        self.cluster.add_namespace(name)

    def create(self, key: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        """Creates an object."""
        return self.cluster.api.create(BY_KEY[key], namespace, body)[0]

    def objects(self, key: str, namespace: str = "") -> list[dict[str, Any]]:
        """Returns the objects of a kind."""
        return self.cluster.store.all(BY_KEY[key], namespace)

    def set_status(
        self, key: str, namespace: str, name: str, status: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Sets fields of an object's status."""
        return self.cluster.store.mutate(
            BY_KEY[key], namespace, name, lambda obj: obj.setdefault("status", {}).update(status)
        )

    def left(self) -> list[str]:
        """Returns what there is beside the furniture, as ``plural/namespace/name``."""
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

    # -- looking

    def requests(self, since: int = 0) -> list[dict[str, Any]]:
        """Returns the requests so far."""
        return self.cluster.front.requests[since:]

    def counted(self) -> int:
        """Returns how many requests there have been."""
        return len(self.cluster.front.requests)

    def streams(self) -> dict[str, int]:
        """Returns how many streams are open, and the most there have been."""
        return {"now": self.cluster.front.streams, "most": self.cluster.front.most_streams}

    def warnings(self) -> list[str]:
        """Returns the warnings given: unknown fields, and jobs deleted without a policy."""
        return self.cluster.warnings

    def problems(self) -> list[str]:
        """Returns what went wrong in the double itself."""
        return self.cluster.problems

    def reset(self) -> None:
        """Removes everything but the furniture, at once, and undoes what was steered."""
        cluster = self.cluster
        cluster.admission.faults.clear()
        cluster.admission.webhooks.clear()
        cluster.admission.denials.clear()
        cluster.kubelet.sequences.clear()
        cluster.operators.rows.clear()
        cluster.operators.kueue = False
        cluster.kubelet.log_resolution = 1
        cluster.kubelet.log_skew = 0
        cluster.kubelet.split_streams = False
        self.serve_operators(["jobset", "volcano", "mcad", "kueue"])
        self._capacity(cluster.capacity)
        if not cluster.front.is_up:
            cluster.front.up()
        kept = {"nodes", "queues.scheduling.volcano.sh"}
        for _ in range(2):  # a controller may be making something
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
        """Ends the double."""
        self.ended.set()


def serve(control: Control, secret: str) -> int:
    """Serves a control on a port of its own; returns it."""

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
