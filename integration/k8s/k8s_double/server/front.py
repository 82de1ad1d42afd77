"""The server for HTTP or HTTPS, with paths, users and streams; it can go down and up again."""

from __future__ import annotations

import json
import random
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from k8s_double import errors
from k8s_double.controllers.scheduling import set_condition
from k8s_double.errors import ApiError
from k8s_double.kinds import KINDS, PODS, ROLE_BINDINGS, ROLES, Kind
from k8s_double.node import sessions
from k8s_double.server import websocket
from k8s_double.server.admission import Fault
from k8s_double.server.api import BODY_LIMIT
from k8s_double.store import Change, Object

if TYPE_CHECKING:
    from k8s_double.cluster import Cluster

_BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in KINDS}
_OPEN = {"/version", "/healthz", "/livez", "/readyz"}
_VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0-double",
    "gitCommit": "double",
    "gitTreeState": "clean",
    "buildDate": "2024-12-11T17:59:15Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}


class Target(NamedTuple):
    """The resource that a path names."""

    kind: Kind
    namespace: str
    name: str
    sub: str


def parse(path: str) -> Target | None:
    """Parse the path of a resource; return None for other paths.

    Raises:
        ApiError: 404 for an unknown resource.
    """
    words = [unquote(word) for word in path.strip("/").split("/")]
    if words[:1] == ["api"] and len(words) > 2:
        group, version, rest = "", words[1], words[2:]
    elif words[:1] == ["apis"] and len(words) > 3:
        group, version, rest = words[1], words[2], words[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (group, version, rest[2]) in _BY_PATH:
        namespace, rest = rest[1], rest[2:]
    kind = _BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3:
        raise errors.no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    sub = rest[2] if len(rest) > 2 else ""
    if sub and sub not in kind.subresources:
        raise errors.no_such_path()
    if kind.namespaced and name and not namespace:
        raise errors.no_such_path()
    return Target(kind, namespace, name, sub)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256
    front: Front

    def finish_request(self, request: Any, client_address: Any) -> None:
        # this runs in the connection's own thread, so a slow handshake blocks no other connection
        if self.front.tls is not None:
            try:
                request.settimeout(30)
                request = self.front.tls.wrap_socket(request, server_side=True)
                request.settimeout(None)
            except (OSError, ssl.SSLError):
                return
        self.front.sockets.add(request)
        try:
            super().finish_request(request, client_address)
        except OSError:
            pass  # the client or the server closed the connection
        finally:
            self.front.sockets.discard(request)
            _close(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        import traceback

        self.front.cluster.problem(traceback.format_exc())


def _close(found: socket.socket) -> None:
    for close in (lambda: found.shutdown(socket.SHUT_RDWR), found.close):
        try:
            close()
        except OSError:
            pass


def _free_port() -> int:
    """Return a free port that no outgoing connection gets while the server is down."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    while True:
        port = random.randrange(max(1024, first - 10_000), first)  # noqa: S311 - no cryptography
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # in use
        return port


class Front:
    """The listener of the API server; its port stays the same when it goes down and up.

    Attributes:
        requests: The requests so far, with the status codes of the responses.
        streams: How many streams are open.
        most_streams: The largest number of open streams so far.
        generation: The number of cuts so far; streams that began before the last cut end.
        cut_cleanly: Whether cut streams end as if they were complete.
        session_protocols: The accepted versions of the protocol for commands and ports of pods.
    """

    def __init__(
        self, cluster: Cluster, tls: ssl.SSLContext | None, tokens: dict[str, str]
    ) -> None:
        self.cluster = cluster
        self.tls = tls
        self.tokens = tokens
        self.port = 0
        self.sockets: set[socket.socket] = set()
        self.requests: list[dict[str, Any]] = []
        self.streams = 0
        self.most_streams = 0
        self.generation = 0
        self.cut_cleanly = True
        # the API server of 1.32 accepts both versions
        self.session_protocols = [websocket.V5, websocket.V4]
        self.lock = threading.Lock()
        self._server: _Server | None = None

    def up(self) -> None:
        """Start to listen."""
        handler = type("Handler", (_Handler,), {"front": self})
        self._server = _Server(("127.0.0.1", self.port or _free_port()), handler)
        self._server.front = self
        self.port = self._server.server_address[1]
        self.cluster.kubelet.server = ("127.0.0.1", self.port)
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True, name="front"
        ).start()

    def down(self) -> None:
        """Refuse new connections, and close the open connections."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.socket.close()
            for found in list(self.sockets):
                _close(found)

    @property
    def is_up(self) -> bool:
        return self._server is not None

    def cut(self, *, clean: bool) -> None:
        """End the open streams of logs and watches; ``clean`` becomes ``cut_cleanly``."""
        with self.lock:
            self.cut_cleanly = clean
            self.generation += 1
        with self.cluster.store.lock:
            self.cluster.store.changed.notify_all()


class _Cut(Exception):
    """Raised to break the connection in the middle of a stream."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    front: Front

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # the methods that the library calls
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        front = self.front
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        record = {
            "method": self.command,
            "path": parts.path,
            "query": query,
            "code": 0,
            "user": "",
            "agent": self.headers.get("User-Agent", ""),
            "time": time.time(),
        }
        with front.lock:
            front.requests.append(record)
        self._record = record
        self._headers_sent = False
        self._warnings: list[str] = []
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if length > BODY_LIMIT:
                self.close_connection = True
                self.rfile.read(length)
                raise ApiError(
                    413,
                    "RequestEntityTooLarge",
                    f"Request entity too large: limit is {BODY_LIMIT}",
                )
            body = self.rfile.read(length)
            fault = front.cluster.admission.fault(self.command, self.path)
            if fault is not None and not self._fault(fault):
                return
            self._route(parts.path.rstrip("/"), query, body, record)
            if fault is not None and fault.served:
                self.close_connection = True
        except ApiError as e:
            self._answer(e.code, e.status(), e.headers)
        except _Cut:
            self.close_connection = True
        except OSError:
            self.close_connection = True
        except Exception:
            import traceback

            front.cluster.problem(traceback.format_exc())
            if not self._headers_sent:
                self._answer(500, ApiError(500, "InternalError", traceback.format_exc()).status())

    def _fault(self, fault: Fault) -> bool:
        """Apply a fault; return whether the request is carried out."""
        if fault.served:
            self._mute = True
            return True
        if fault.code == 0:
            self._record["code"] = -1
            self.close_connection = True
            return False
        error = self.front.cluster.admission.answer(fault)
        if fault.plain:
            self._send(fault.code, error.message.encode(), "text/plain", error.headers)
        else:
            self._answer(fault.code, error.status(), error.headers)
        return False

    _mute = False

    def _user(self) -> str:
        given = self.headers.get("Authorization", "")
        user = self.front.tokens.get(given.removeprefix("Bearer ")) if given else None
        if user is None:
            raise errors.unauthorized()
        return user

    def _route(self, path: str, query: dict[str, str], body: bytes, record: dict[str, Any]) -> None:
        if path in _OPEN:
            if path == "/version":
                self._answer(200, _VERSION)
            else:
                self._send(200, b"ok", "text/plain")
            return
        user = record["user"] = self._user()
        target = parse(path)
        if target is None:
            self._discovery(path)
            return
        if not self.front.cluster.api.served(target.kind):
            raise ApiError(404, "NotFound", "404 page not found")
        verb = self._verb(target, query)
        self.front.cluster.admission.rights(
            user, verb, target.kind, target.sub, target.namespace, target.name
        )
        if self.command == "GET":
            self._get(target, query)
        else:
            self._write(target, query, body)

    def _verb(self, target: Target, query: dict[str, str]) -> str:
        named = bool(target.name)
        if self.command == "GET":
            if query.get("watch") in ("true", "1", "True"):
                return "watch"
            return "get" if named else "list"
        if self.command == "DELETE":
            return "delete" if named else "deletecollection"
        return {"POST": "create", "PUT": "update", "PATCH": "patch"}[self.command]

    # Methods that read objects.

    def _get(self, target: Target, query: dict[str, str]) -> None:
        cluster, kind = self.front.cluster, target.kind
        if query.get("watch") in ("true", "1", "True"):
            self._watch(target, query)
        elif target.sub in ("exec", "portforward"):
            pod = cluster.store.get(PODS, target.namespace, target.name)
            self._session(pod, target.sub)
        elif target.sub == "log":
            pod = cluster.store.get(PODS, target.namespace, target.name)
            self._log(pod, query)
        elif target.name:
            obj = cluster.store.get(kind, target.namespace, target.name)
            self._send(200, cluster.store.text(kind, obj))
        else:
            found, metadata = cluster.api.page(kind, target.namespace, query)
            head = {
                "kind": f"{kind.kind}List",
                "apiVersion": kind.api_version,
                "metadata": metadata,
            }
            items = b",".join(cluster.store.text(kind, obj) for obj in found)
            text = json.dumps(head, separators=(",", ":")).encode()
            self._send(200, text[:-1] + b',"items":[' + items + b"]}")

    def _log(self, pod: Object, query: dict[str, str]) -> None:
        front = self.front
        generation = front.generation

        def wanted() -> bool:
            return front.generation == generation and self._connected()

        stream = front.cluster.kubelet.log(pod, query, wanted)
        self._begin_stream("text/plain")
        try:
            for chunk in stream:
                self._chunk(chunk)
                if front.generation != generation:
                    break
            if front.generation != generation and not front.cut_cleanly:
                raise _Cut
            self._end_stream()
        finally:
            with front.lock:
                front.streams -= 1

    def _session(self, pod: Object, kind: str) -> None:
        """Serve a command in a pod, or ports of a pod, on a WebSocket."""
        query: dict[str, list[str]] = {}
        for name, value in parse_qsl(urlsplit(self.path).query, keep_blank_values=True):
            query.setdefault(name, []).append(value)
        kubelet = self.front.cluster.kubelet
        container = (query.get("container") or [""])[0]
        worker, found = sessions.container_of(kubelet, pod, container)
        if self.headers.get("Upgrade", "").lower() != "websocket":
            raise ApiError(400, "BadRequest", "Upgrade request required")
        offered = [
            word.strip() for word in self.headers.get("Sec-WebSocket-Protocol", "").split(",")
        ]
        served = [p for p in self.front.session_protocols if kind == "exec" or p == websocket.V4]
        protocol = next((p for p in offered if p in served), "")
        if not protocol:
            raise ApiError(400, "BadRequest", f"unable to upgrade: no protocol of {offered}")
        # With version 5, the API server accepts the connection before it asks the node.
        is_translated = protocol == websocket.V5
        if not is_translated:
            sessions.check_runs(kind, pod, found)
        self._record["code"] = 101
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        key = self.headers.get("Sec-WebSocket-Key", "")
        self.send_header("Sec-WebSocket-Accept", websocket.accept_key(key))
        self.send_header("Sec-WebSocket-Protocol", protocol)
        self.end_headers()
        self.wfile.flush()
        self._headers_sent = self.close_connection = True
        channels = websocket.ServerSocket(self.rfile, self.connection, protocol)
        try:
            sessions.check_runs(kind, pod, found)
        except ApiError as e:
            sessions.end_session(channels, e.status())
            return
        if kind == "exec":
            assert worker is not None
            assert found is not None
            sessions.Exec(worker, found, query, channels).serve()
        else:
            ports = [int(text) for text in query["ports"]]
            sessions.forward(pod["metadata"]["name"], ports, channels)

    def _connected(self) -> bool:
        if not self.front.is_up:
            return False
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
        except (OSError, ValueError):
            return False
        # a client sends nothing during a stream, so the socket is readable only if it was closed
        return not readable

    def _watch(self, target: Target, query: dict[str, str]) -> None:
        front, kind = self.front, target.kind
        store = front.cluster.store
        if target.name:
            query = {**query, "fieldSelector": f"metadata.name={target.name}"}
        test = front.cluster.api.selected(kind, query)
        seconds = float(query.get("timeoutSeconds") or 1800)
        deadline = time.monotonic() + seconds
        asked = query.get("resourceVersion", "")
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1", "True")
        generation = front.generation
        self._begin_stream("application/json")
        try:
            with store.lock:
                version = int(asked) if asked.isdigit() and asked != "0" else store.version
                existing = (
                    [obj for obj in store.all(kind, target.namespace) if test(obj)]
                    if asked in ("", "0") or query.get("sendInitialEvents") == "true"
                    else []
                )
            for obj in existing:
                self._event("ADDED", store.text(kind, obj))
            if query.get("sendInitialEvents") == "true" and bookmarks:
                self._bookmark(kind, version, initial=True)
            told = time.monotonic()
            while time.monotonic() < deadline and front.generation == generation:
                try:
                    changes = list(store.since(version, kind.key))
                except ApiError as e:
                    self._event("ERROR", json.dumps(e.status()).encode())
                    return
                for change in changes:
                    self._changed(kind, change, target.namespace, test)
                with store.lock:
                    version = changes[-1].version if changes else max(version, version)
                    newest = store.version
                    if not changes:
                        store.changed.wait(min(0.5, max(0.0, deadline - time.monotonic())))
                if not self._connected():
                    raise _Cut
                if bookmarks and time.monotonic() - told > 1:
                    told = time.monotonic()
                    if not list(store.since(version, kind.key)):
                        version = max(version, newest)
                        self._bookmark(kind, version)
            if front.generation != generation and not front.cut_cleanly:
                raise _Cut
        finally:
            with front.lock:
                front.streams -= 1
        self._end_stream()

    def _changed(self, kind: Kind, change: Change, namespace: str, test: Any) -> None:
        metadata = change.obj["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return
        before = change.before is not None and test(change.before)
        after = change.type != "DELETED" and test(change.obj)
        text = self.front.cluster.store.text(kind, change.obj)
        if after:
            self._event("MODIFIED" if before else "ADDED", text)
        elif before:
            self._event("DELETED", text)

    def _event(self, type_: str, text: bytes) -> None:
        self._chunk(b'{"type":"%s","object":%s}\n' % (type_.encode(), text))

    def _bookmark(self, kind: Kind, version: int, *, initial: bool = False) -> None:
        metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        self._event("BOOKMARK", json.dumps(obj).encode())

    # Methods that write objects.

    def _write(self, target: Target, query: dict[str, str], body: bytes) -> None:
        api, kind = self.front.cluster.api, target.kind
        if self.command == "POST":
            if target.sub == "eviction":
                api.store.mutate(kind, target.namespace, target.name, _evicted)
                obj, _ = api.delete(kind, target.namespace, target.name, {})
                self._answer(201, _success(kind, obj))
                return
            if target.name:
                raise ApiError(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method on the requested resource",
                )
            if kind in (ROLES, ROLE_BINDINGS):
                self.front.cluster.admission.granting(
                    self._record["user"], kind, target.namespace, json.loads(body)
                )
            obj, self._warnings = api.create(kind, target.namespace, body, query)
            self._send(201, self._text(kind, obj))
        elif self.command == "PUT":
            obj, self._warnings = api.replace(
                kind, target.namespace, target.name, body, query, target.sub
            )
            self._send(200, self._text(kind, obj))
        elif self.command == "PATCH":
            type_ = self.headers.get("Content-Type", "").partition(";")[0].strip()
            obj, self._warnings = api.patch(
                kind, target.namespace, target.name, body, query, target.sub, type_
            )
            self._send(200, self._text(kind, obj))
        elif self.command == "DELETE":
            self._delete(target, query, body)
        else:
            raise ApiError(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )

    def _delete(self, target: Target, query: dict[str, str], body: bytes) -> None:
        api, kind = self.front.cluster.api, target.kind
        options: dict[str, Any] = json.loads(body) if body.strip() else {}
        if "propagationPolicy" in query:
            options["propagationPolicy"] = query["propagationPolicy"]
        if "gracePeriodSeconds" in query:
            options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        if "dryRun" in query:
            options["dryRun"] = [query["dryRun"]]
        if target.name:
            if kind.key == "jobs.batch" and "propagationPolicy" not in options:
                self._warnings = [
                    (
                        "child pods are preserved by default when jobs are deleted; set"
                        " propagationPolicy=Background to remove them or set"
                        " propagationPolicy=Orphan to suppress this warning"
                    )
                ]
            obj, gone = api.delete(kind, target.namespace, target.name, options)
            if gone and kind is not PODS:
                self._answer(200, _success(kind, obj))
            else:
                self._send(200, self._text(kind, obj))
            return
        found, _ = api.page(
            kind,
            target.namespace,
            {k: v for k, v in query.items() if k in ("labelSelector", "fieldSelector")},
        )
        for obj in found:
            metadata = obj["metadata"]
            try:
                api.delete(kind, metadata.get("namespace", ""), metadata["name"], options)
            except ApiError as e:
                if e.code != 404:
                    raise
        head = {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(api.store.version)},
            "items": found,
        }
        self._answer(200, head)

    def _text(self, kind: Kind, obj: Object) -> bytes:
        return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )

    # Methods that describe the API.

    def _discovery(self, path: str) -> None:
        api = self.front.cluster.api
        kinds = [kind for kind in KINDS if api.served(kind)]
        versions = {k.group: [k.version] for k in kinds}
        words = path.strip("/").split("/")
        if path in ("/api", "/api/"):
            self._answer(
                200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            )
        elif path in ("/apis", "/apis/"):
            groups = [_group(group, *versions[group]) for group in sorted(versions) if group]
            self._answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        elif words[0] == "apis" and len(words) == 2:
            if words[1] not in versions:
                raise ApiError(404, "NotFound", "404 page not found")
            group = _group(words[1], *versions[words[1]])
            self._answer(200, {"kind": "APIGroup", "apiVersion": "v1", **group})
        elif len(words) == (2 if words[0] == "api" else 3):
            name = "" if words[0] == "api" else words[1]
            if words[-1] not in versions.get(name, []):
                raise ApiError(404, "NotFound", "404 page not found")
            self._answer(
                200,
                {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": "/".join(words[1:]),
                    "resources": [row for k in kinds if k.group == name for row in _resources(k)],
                },
            )
        else:
            raise ApiError(404, "NotFound", "404 page not found")

    # Methods that send responses.

    def _answer(self, code: int, obj: Any, headers: dict[str, str] | None = None) -> None:
        self._send(code, json.dumps(obj).encode("utf-8", "surrogatepass"), headers=headers)

    def _send(
        self,
        code: int,
        body: bytes,
        type_: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        self._record["code"] = code
        if self._mute:  # the request was carried out, but the response is lost
            self.close_connection = True
            return
        self.send_response(code)
        self.send_header("Content-Type", type_)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        for warning in self._warnings:
            with self.front.lock:
                self.front.cluster.warnings.append(warning)
            words = re.sub(r'(["\\])', r"\\\1", warning)
            self.send_header("Warning", f'299 - "{words}"')
        self.end_headers()
        self._headers_sent = True
        self.wfile.write(body)

    def _begin_stream(self, type_: str) -> None:
        self._record["code"] = 200
        self.send_response(200)
        self.send_header("Content-Type", type_)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._headers_sent = True
        self.wfile.flush()
        with self.front.lock:
            self.front.streams += 1
            self.front.most_streams = max(self.front.streams, self.front.most_streams)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


def _success(kind: Kind, obj: Object) -> dict[str, Any]:
    details = {"name": obj["metadata"]["name"], "kind": kind.plural, "uid": obj["metadata"]["uid"]}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def _evicted(pod: Object) -> None:
    words = "Eviction API: evicting"
    set_condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", words)


def _group(group: str, *versions: str) -> dict[str, Any]:
    served = [{"groupVersion": f"{group}/{one}", "version": one} for one in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resources(kind: Kind) -> Iterator[dict[str, Any]]:
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    yield {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs,
    }
    for sub in kind.subresources:
        yield {
            "name": f"{kind.plural}/{sub}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": ["get"] if sub == "log" else ["get", "patch", "update"],
        }
