"""Tests of the connection of workspace builds to an engine: a real one and an HTTP double."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from docker.client import from_env

from torchx_workspace_docker.engine.build import connect


class EngineDouble(socketserver.ThreadingUnixStreamServer):
    """An engine that answers a client's first requests.

    Attributes:
        ping_version: The API version in the headers of ``/_ping``; empty sends no version.
        requests: The paths that were requested.
    """

    daemon_threads = True
    ping_version = ""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: EngineDouble

    def address_string(self) -> str:
        return "-"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        body = b'{"ApiVersion": "1.40"}' if self.path == "/version" else b"OK"
        self.send_response(200)
        if self.path == "/_ping" and self.server.ping_version:
            self.send_header("Api-Version", self.server.ping_version)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineDouble]:
    double = EngineDouble(tmp_path / "docker.sock")
    threading.Thread(target=double.serve_forever, args=(0.02,)).start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    yield double
    double.shutdown()
    double.server_close()


def test_api_version_comes_from_ping(double: EngineDouble) -> None:
    double.ping_version = "1.41"
    client = connect()
    assert client.api.api_version == "1.41"
    assert double.requests == ["/_ping"]
    client.close()


def test_api_version_comes_from_version_if_ping_has_none(double: EngineDouble) -> None:
    client = connect()
    assert client.api.api_version == "1.40"
    assert double.requests == ["/_ping", "/version"]
    client.close()


def test_api_version_of_a_real_engine(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in engine.items():
        monkeypatch.setenv(name, value)
    ours, default = connect(), from_env()
    assert ours.api.api_version == default.api.api_version
    assert ours.ping()
    ours.close()
    default.close()
