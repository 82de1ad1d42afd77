"""A double of an API server, which returns the responses that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml


class Request(NamedTuple):
    """One request that the double received."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str


#: HTTP status code and body: data to send as JSON, or bytes. None closes the connection.
Answer = tuple[int, Any] | None


class ApiDouble:
    """Answers requests by the rules of :meth:`answer`; the last rule that matches wins."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[Request] = []
        self._rules: list[tuple[str, str, Callable[[Request], Answer]]] = []
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                token = self.headers.get("Authorization") or ""
                request = Request(self.command, url.path, dict(parse_qsl(url.query)), body, token)
                double.requests.append(request)
                answer = double._answer(request)
                if answer is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, data = answer
                raw = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_one  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        self.write_kubeconfig("first")

    def write_kubeconfig(self, token: str) -> None:
        """Write the kubeconfig with this token."""
        server = f"http://127.0.0.1:{self._server.server_port}"
        data = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "double",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [
                {"name": "double", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
                {"name": "other", "context": {"cluster": "c", "user": "u"}},
            ],
        }
        self.kubeconfig.write_text(yaml.safe_dump(data))

    def answer(self, method: str, path: str, *answers: Any) -> None:
        """Set the responses to requests.

        Args:
            method: HTTP method.
            path: The end of the request's path.
            *answers: The responses, in order; the last one is repeated. Each is data, a pair of
                status code and data, or a function that gets the request and returns one of these.
        """
        left = list(answers)

        def next_answer(request: Request) -> Answer:
            one = left.pop(0) if len(left) > 1 else left[0]
            if callable(one):
                one = one(request)
            if one is None:
                return None
            status, data = one if isinstance(one, tuple) else (200, one)
            return status, data

        self._rules.append((method, path, next_answer))

    def _answer(self, request: Request) -> Answer:
        for method, path, rule in reversed(self._rules):
            if method == request.method and request.path.endswith(path):
                found: Answer = rule(request)
                return found
        message = "the server could not find the requested resource"
        return 404, {"kind": "Status", "message": message, "reason": "NotFound", "code": 404}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiDouble]:
    """A double of an API server. KUBECONFIG names the kubeconfig of the double."""
    double = ApiDouble(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(double.kubeconfig))
    yield double
    double.close()
