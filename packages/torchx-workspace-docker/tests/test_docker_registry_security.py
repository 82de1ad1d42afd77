"""Tests with registries that are hostile or misconfigured, on HTTP servers in this process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from urllib3.response import HTTPResponse

from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry import connection, transport
from torchx_workspace_docker.registry.client import Registry
from torchx_workspace_docker.registry.connection import Connection
from torchx_workspace_docker.registry.errors import RegistryError
from torchx_workspace_docker.registry.transport import Response

Answer = Callable[[str, socket.socket], bytes]


class HostileRegistry:
    """A server that answers each request with bytes of a script, and records the requests.

    Args:
        answer: Called with the head of a request and the connection; returns the response.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.requests: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._respond, args=(client,), daemon=True).start()

    def _respond(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (data := client.recv(1 << 16)):
                head += data
            self.requests.append(head.decode())
            client.sendall(self._answer(head.decode(), client))


def response(body: bytes = b"", status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty Docker configuration, and no pauses."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(connection, "ATTEMPTS", 2)
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.0)
    return tmp_path / "config.json"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], HostileRegistry]]:
    """Return a function that starts a server; the fixture stops it."""
    with contextlib.ExitStack() as stack:

        def start(answer: Answer) -> HostileRegistry:
            server = HostileRegistry(answer)
            stack.callback(server.close)
            return server

        yield start


def registry_of(server: HostileRegistry, push_to: str = "a") -> Registry:
    return Registry(Connection(Reference(server.name, "a", "1")), push_to)


def answered_location(base: str, location: str) -> str:
    own = Connection(Reference.parse(f"{base}/a:1"))
    raw = HTTPResponse()
    return own.location(Response(202, {"Location": location}, "", b"", raw), "/v2/a/blobs/uploads/")


@pytest.mark.parametrize(
    "location",
    ["http://example.com/v2/x", "//[", "ftp://example.com/x", "http://example.com:443/x"],
)
def test_location_of_an_upload_may_not_leave_tls(location: str) -> None:
    with pytest.raises(RegistryError, match=r"no TLS|invalid Location|not a valid URL"):
        answered_location("example.com", location)


def test_location_may_be_relative_or_in_another_storage() -> None:
    assert answered_location("example.com", "/x?y=1") == "https://example.com/x?y=1"
    assert answered_location("example.com", "https://b.test/x") == "https://b.test/x"


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("https://example.com/x", True),
        ("https://EXAMPLE.com:443/x", True),
        ("https://example.com:8443/x", False),
        ("http://example.com/x", False),
        ("https://example.com.evil.test/x", False),
        ("https://example.com@evil.test/x", False),
    ],
)
def test_credentials_belong_to_scheme_host_and_port(url: str, is_own: bool) -> None:
    assert Connection(Reference.parse("example.com/a:1"))._is_own(url) is is_own


def test_password_is_not_sent_to_the_storage_of_an_upload(
    serve: Callable[[Answer], HostileRegistry], credentials: Path
) -> None:
    storage = serve(lambda head, client: response(b"", "201 Created"))

    def answer(head: str, client: socket.socket) -> bytes:
        if "Authorization: Basic" not in head:
            return response(b"", "401 Unauthorized", "WWW-Authenticate: Basic realm=x")
        return response(b"", "202 Accepted", f"Location: http://{storage.name}/upload")

    server = serve(answer)
    login = {"username": "user", "password": "secret"}
    credentials.write_text(json.dumps({"auths": {server.name: login}}))
    digest = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    registry_of(server).upload("a", digest, 1, io.BytesIO(b"x"))
    assert any("Authorization: Basic" in head for head in server.requests)
    assert len(storage.requests) == 1
    assert "Authorization" not in storage.requests[0]


def test_identity_token_is_not_sent_to_the_target_of_a_redirect(
    serve: Callable[[Answer], HostileRegistry], credentials: Path
) -> None:
    elsewhere = serve(lambda head, client: response(b'{"token": "t"}'))

    def answer(head: str, client: socket.socket) -> bytes:
        if head.startswith("POST /token"):
            return response(b"", "307 Temporary", f"Location: http://{elsewhere.name}/token")
        realm = f'WWW-Authenticate: Bearer realm="http://{server.name}/token"'
        return response(b"", "401 Unauthorized", realm)

    server = serve(answer)
    login = {"auth": "", "identitytoken": "secret"}
    credentials.write_text(json.dumps({"auths": {server.name: login}}))
    with pytest.raises(RegistryError, match="answers 307"):
        registry_of(server).manifest("a", "1")
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1:5000", True),
        ("127.8.9.1", True),
        ("localhost:5000", True),
        ("[::1]:5000", True),
        ("127.evil.test", False),
        ("127.0.0.1.evil.test:5000", False),
        ("localhost.evil.test", False),
        ("[::1].evil.test", False),
        ("10.0.0.1:5000", False),
    ],
)
def test_only_loopback_addresses_are_trusted_without_tls(host: str, is_loopback: bool) -> None:
    assert Reference(host, "a", "1").is_loopback is is_loopback


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        json.dumps({"config": 1, "layers": []}).encode(),
        json.dumps({"config": {"digest": DIGEST, "size": 1}, "layers": {"a": 1}}).encode(),
        json.dumps({"config": {"digest": "../x", "size": 1}, "layers": []}).encode(),
        json.dumps({"config": {"digest": DIGEST, "size": -1}, "layers": []}).encode(),
        json.dumps({"config": {"digest": DIGEST, "size": "1"}, "layers": []}).encode(),
        json.dumps({"manifests": [{"digest": DIGEST, "size": 1, "platform": []}, 7]}).encode(),
        json.dumps({"mediaType": 7, "config": {}, "layers": []}).encode(),
    ],
)
def test_malformed_manifest_is_one_clear_error(
    serve: Callable[[Answer], HostileRegistry], manifest: bytes
) -> None:
    server = serve(lambda head, client: response(manifest))
    with pytest.raises(RegistryError, match=f"{server.name}/a") as caught:
        registry_of(server).manifest("a", "1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "config", [b"7", b'{"config": []}', b'{"rootfs": {"diff_ids": 1}}', b'{"history": {"a": 1}}']
)
def test_malformed_configuration_is_one_clear_error(
    serve: Callable[[Answer], HostileRegistry], config: bytes
) -> None:
    server = serve(lambda head, client: response(config))
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    with pytest.raises(RegistryError, match="is not valid"):
        registry_of(server).image_config("a", digest)


@pytest.mark.parametrize(
    "token", ["7", "[]", "{}", '{"token": 7}', '{"token": "a\\r\\nX: y"}', '{"token": "é"}', "["]
)
def test_malformed_token_is_one_clear_error(
    serve: Callable[[Answer], HostileRegistry], token: str
) -> None:
    def answer(head: str, client: socket.socket) -> bytes:
        if " /token" in head:
            return response(token.encode())
        realm = f'WWW-Authenticate: Bearer realm="http://{server.name}/token"'
        return response(b"", "401 Unauthorized", realm)

    server = serve(answer)
    with pytest.raises(RegistryError, match=r"contains (no token|a token that is not valid)"):
        registry_of(server).manifest("a", "1")


def test_endless_content_is_an_error(serve: Callable[[Answer], HostileRegistry]) -> None:
    def answer(head: str, client: socket.socket) -> bytes:
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            client.sendall(b" " * (1 << 20))

    with pytest.raises(RegistryError, match="sends more than 8 MB"):
        registry_of(serve(answer)).manifest("a", "1")


def test_blob_larger_than_the_manifest_says_is_an_error(
    serve: Callable[[Answer], HostileRegistry],
) -> None:
    server = serve(lambda head, client: response(b"x" * 11))
    with pytest.raises(RegistryError, match="more than the 10 bytes of a blob"):
        registry_of(server).download("a", DIGEST, 10, io.BytesIO())


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"]
)
def test_slow_response_is_an_error_after_the_deadline(
    serve: Callable[[Answer], HostileRegistry], start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "DEADLINE", 0.3)

    def answer(head: str, client: socket.socket) -> bytes:
        client.sendall(start)
        while True:
            client.sendall(b" ")
            time.sleep(0.02)

    before = time.monotonic()
    with pytest.raises(RegistryError, match="was not complete after 0 seconds"):
        registry_of(serve(answer)).manifest("a", "1")
    assert time.monotonic() - before < 20


def test_invalid_realm_is_one_clear_error(serve: Callable[[Answer], HostileRegistry]) -> None:
    challenge = 'WWW-Authenticate: Bearer realm="https://["'
    server = serve(lambda head, client: response(b"", "401 Unauthorized", challenge))
    with pytest.raises(RegistryError, match="is not a valid URL"):
        registry_of(server).manifest("a", "1")
