"""Tests with registries that are hostile or misconfigured, on HTTP servers in this process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from urllib3.response import HTTPResponse

from manual_clock import ManualClock
from tcp_server import TcpServer
from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace import Workspace
from torchx_workspace_docker.builder import DockerBuilder
from torchx_workspace_docker.references import Reference, is_loopback
from torchx_workspace_docker.registry import transport
from torchx_workspace_docker.registry.client import Repository
from torchx_workspace_docker.registry.connection import Connection
from torchx_workspace_docker.registry.manifests import (
    INDEX_TYPES,
    OCI_MANIFEST,
    Manifest,
    parse_config,
    sha256,
)
from torchx_workspace_docker.registry.transport import RegistryError, Response

Answer = Callable[[str, socket.socket], bytes]


class HostileRegistry(TcpServer):
    """A server that answers each request with a function's result, and records the requests.

    Args:
        answer: Called with the head of a request and the connection; returns the response.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[str] = []
        super().__init__(self._respond)

    def _respond(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (data := client.recv(1 << 16)):
            head += data
        if head.startswith(b"GET /v2/ "):  # The client asks whether the registry uses TLS.
            client.sendall(response())
            return
        self.requests.append(head.decode())
        client.sendall(self._answer(head.decode(), client))


def response(body: bytes = b"", status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty Docker configuration; return its path."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], HostileRegistry]]:
    """Yield a function that starts a server; the end of the test stops the servers."""
    with contextlib.ExitStack() as stack:

        def start(answer: Answer) -> HostileRegistry:
            server = HostileRegistry(answer)
            stack.callback(server.close)
            return server

        yield start


def repository_of(server: HostileRegistry) -> Repository:
    """Return a client of a registry that does not pause between two attempts."""
    connection = Connection(Reference(server.name, "a", "1"), sleep=lambda seconds: None)
    return Repository(connection, "a", push=True)


def answered_location(base: str, location: str) -> str:
    own = Connection(Reference.parse(f"{base}/a:1"))
    raw = HTTPResponse()
    return own.location(Response(202, {"Location": location}, "", b"", raw), "/v2/a/blobs/uploads/")


@pytest.mark.parametrize(
    "location",
    [
        "http://example.com/v2/x",
        "//[",
        "ftp://example.com/x",
        "http://example.com:443/x",
        r"https://evil.test\@example.com/x",
        r"https://evil.test\\@example.com/x",
    ],
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
    repository_of(server).upload(digest, 1, io.BytesIO(b"x"))
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
        repository_of(server).manifest("1")
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("host", "expected"),
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
def test_only_loopback_addresses_are_trusted_without_tls(host: str, expected: bool) -> None:
    assert is_loopback(Reference(host, "a", "1").host) is expected


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
        repository_of(server).manifest("1")
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
        repository_of(server).image_config(digest)


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
        repository_of(server).manifest("1")


def test_endless_content_is_an_error(serve: Callable[[Answer], HostileRegistry]) -> None:
    def answer(head: str, client: socket.socket) -> bytes:
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            client.sendall(b" " * (1 << 20))

    with pytest.raises(RegistryError, match="sends more than 8388608 bytes"):
        repository_of(serve(answer)).manifest("1")


def test_blob_larger_than_the_manifest_says_is_an_error(
    serve: Callable[[Answer], HostileRegistry],
) -> None:
    server = serve(lambda head, client: response(b"x" * 11))
    with pytest.raises(RegistryError, match="sends more than 10 bytes"):
        repository_of(server).download(DIGEST, 10, io.BytesIO())


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
@pytest.mark.parametrize("method", ["manifest", "download", "upload"])
def test_registry_that_goes_silent_is_not_asked_again(
    serve: Callable[[Answer], HostileRegistry],
    start: bytes,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "TIMEOUT", 0.3)

    def answer(head: str, client: socket.socket) -> bytes:
        if head.startswith("POST"):
            return response(b"", "202 Accepted", "Location: /upload")
        client.sendall(start)
        while client.recv(1 << 16):  # until the client gives up
            pass
        return b""

    server = serve(answer)
    repository = repository_of(server)
    operations: dict[str, Callable[[], object]] = {
        "manifest": lambda: repository.manifest("1"),
        "download": lambda: repository.download(DIGEST, 1 << 20, io.BytesIO()),
        "upload": lambda: repository.upload(DIGEST, 5, io.BytesIO(b"12345")),
    }
    with pytest.raises(RegistryError, match="does not answer"):
        operations[method]()
    assert len([one for one in server.requests if not one.startswith("POST")]) == 1


def test_interrupted_download_begins_again(
    serve: Callable[[Answer], HostileRegistry],
) -> None:
    content = b"x" * (3 << 20)
    answers = iter([response(content)[: 1 << 20], response(content)])
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    out, progress = io.BytesIO(), []
    repository = repository_of(serve(lambda head, client: next(answers)))
    repository.download(digest, len(content), out, progress.append)
    assert out.getvalue() == content
    assert sum(progress) == len(content)
    assert min(progress) < 0


def test_pause_is_as_long_as_a_busy_registry_demands(
    serve: Callable[[Answer], HostileRegistry],
) -> None:
    clock = ManualClock()
    answers = iter([response(b"", "503 Busy", "Retry-After: 60")] * 3 + [response(b"", "404 No")])
    server = serve(lambda head, client: next(answers))
    connection = Connection(Reference(server.name, "a", "1"), sleep=clock.sleep)
    assert Repository(connection, "a").manifest("1") is None
    assert clock.pauses == [60.0] * 3


def test_invalid_realm_is_one_clear_error(serve: Callable[[Answer], HostileRegistry]) -> None:
    challenge = 'WWW-Authenticate: Bearer realm="https://["'
    server = serve(lambda head, client: response(b"", "401 Unauthorized", challenge))
    with pytest.raises(RegistryError, match="is not a valid URL"):
        repository_of(server).manifest("1")


def test_target_of_a_redirect_cannot_ask_for_the_credentials(
    serve: Callable[[Answer], HostileRegistry], credentials: Path
) -> None:
    other = serve(
        lambda head, _: response(
            b"", "401 Unauthorized", f'WWW-Authenticate: Bearer realm="http://{other.name}/token"'
        )
    )
    own = serve(
        lambda head, _: response(
            b"", "307 Temporary Redirect", f"Location: http://{other.name}/storage"
        )
    )
    for secret in ({"auth": "dTpzZWNyZXQ="}, {"identitytoken": "secret"}):
        credentials.write_text(json.dumps({"auths": {own.name: secret}}))
        with pytest.raises(RegistryError, match="refuses GET"):
            repository_of(own).manifest("1")
    assert other.requests
    sent = "".join(other.requests)
    assert "authorization" not in sent.lower()
    assert "/token" not in sent


def test_location_with_a_backslash_gets_no_credentials(
    serve: Callable[[Answer], HostileRegistry], credentials: Path
) -> None:
    other = serve(lambda head, _: response())
    own = serve(
        lambda head, _: response(
            b"", "307 Temporary Redirect", rf"Location: http://{other.name}\@{own.name}/x"
        )
    )
    credentials.write_text(json.dumps({"auths": {own.name: {"auth": "dTpzZWNyZXQ="}}}))
    with pytest.raises(RegistryError, match="not a valid URL"):
        repository_of(own).manifest("1")
    assert other.requests == []


def test_negative_size_of_a_chunk_is_one_clear_error(
    serve: Callable[[Answer], HostileRegistry],
) -> None:
    server = serve(
        lambda head, _: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n"
    )
    with pytest.raises(RegistryError, match="not valid HTTP"):
        repository_of(server).manifest("1")


def test_token_service_of_another_machine_needs_tls(
    serve: Callable[[Answer], HostileRegistry], credentials: Path
) -> None:
    # 192.0.2.1 is an address for documentation, so nothing listens there.
    challenge = 'WWW-Authenticate: Bearer realm="http://192.0.2.1/token"'
    server = serve(lambda head, client: response(b"", "401 Unauthorized", challenge))
    credentials.write_text(json.dumps({"auths": {server.name: {"auth": "dTpzZWNyZXQ="}}}))
    with pytest.raises(RegistryError, match=r"without TLS, to http://192\.0\.2\.1/token"):
        repository_of(server).manifest("1")


def image_registry(
    serve: Callable[[Answer], HostileRegistry],
    manifest: dict[str, object],
    config: dict[str, object] | None = None,
) -> HostileRegistry:
    """Serve an image without layers that has this manifest, and accept every upload."""
    blob = json.dumps(config or {"os": "linux"}).encode()
    descriptor = {"digest": sha256(blob), "size": len(blob)}
    data = json.dumps({"config": descriptor, "layers": [], **manifest}).encode()

    def answer(head: str, client: socket.socket) -> bytes:
        method, path, _ = head.split(" ", 2)
        if method == "GET" and path == "/v2/a/manifests/1":
            return response(data, "200 OK", f"Content-Type: {OCI_MANIFEST}")
        if method == "GET" and "/v2/a/blobs/" in path:
            return response(blob)
        if method == "POST":
            return response(b"", "202 Accepted", "Location: /v2/b/blobs/uploads/1")
        if method == "PUT":
            return response(b"", "201 Created")
        return response(b"", "404 Not Found")

    return serve(answer)


def build_on(server: HostileRegistry, folder: Path) -> None:
    """Add a workspace to the image ``a:1`` of a registry."""
    (folder / "workspace").mkdir()
    (folder / "workspace" / "train.py").write_text("")
    workspace = Workspace({str(folder / "workspace"): ""})
    cfg = {"image_repo": f"{server.name}/b", "quiet": True}
    builder = DockerBuilder()
    builder.remote = True
    builder.build(builder.plan(f"{server.name}/a:1", workspace, cfg), cfg)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"mediaType": "a\r\nX-Evil: 1"}, "is not a media type"),
        ({"mediaType": "a/\ud800"}, "is not a media type"),
        ({"mediaType": INDEX_TYPES[0]}, "only for no platform"),
        ({"manifests": [{"digest": DIGEST, "size": 1}] * 1001}, "more than 1000 entries"),
        ({"layers": [{"digest": DIGEST, "size": 1}] * 1001}, "more than 1000 entries"),
    ],
)
def test_manifest_that_no_image_has_is_one_clear_error(
    serve: Callable[[Answer], HostileRegistry],
    tmp_path: Path,
    manifest: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(WorkspaceError, match=message):
        build_on(image_registry(serve, manifest), tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"config": {"WorkingDir": "/\ud800"}}, "WorkingDir is not a path"),
        ({"config": {"WorkingDir": "/a\0b"}}, "WorkingDir is not a path"),
        ({"config": {"WorkingDir": "/" + "a" * 5000}}, "WorkingDir is not a path"),
    ],
)
def test_configuration_that_no_image_has_is_one_clear_error(
    serve: Callable[[Answer], HostileRegistry],
    tmp_path: Path,
    config: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(RegistryError, match=message):
        build_on(image_registry(serve, {}, config), tmp_path)


@pytest.mark.parametrize("parse", [partial(Manifest.parse, content_type=""), parse_config])
def test_content_with_too_many_levels_is_one_clear_error(
    parse: Callable[[bytes, str], object],
) -> None:
    levels = 100_000
    with pytest.raises(RegistryError, match="too many levels"):
        parse(b'{"a":' + b"[" * levels + b"]" * levels + b"}", "a")


@pytest.mark.parametrize("manifest", [{"layers": None}, {"manifests": None}])
def test_null_is_an_empty_list(manifest: dict[str, object]) -> None:
    content = {"config": {"digest": DIGEST, "size": 1}, "layers": [], **manifest}
    parsed = Manifest.parse(json.dumps(content).encode(), "a", OCI_MANIFEST)
    assert parsed.content["layers"] == []
    assert not parsed.is_index


def test_few_images_of_an_index_are_requested(
    serve: Callable[[Answer], HostileRegistry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", "linux/amd64")
    platform = {"os": "linux", "architecture": "amd64"}
    entries = [{"digest": f"sha256:{i:064x}", "size": 1, "platform": platform} for i in range(900)]
    server = image_registry(serve, {"manifests": entries})
    with pytest.raises(WorkspaceError, match="is not for linux/amd64"):
        build_on(server, tmp_path)
    assert len(server.requests) < 10


def test_text_of_a_registry_in_an_error_is_one_short_line(
    serve: Callable[[Answer], HostileRegistry], tmp_path: Path
) -> None:
    platforms = [{"os": "o\n" * 500, "architecture": str(i)} for i in range(500)]
    entries = [{"digest": DIGEST, "size": 1, "platform": platform} for platform in platforms]
    with pytest.raises(WorkspaceError) as raised:
        build_on(image_registry(serve, {"manifests": entries}), tmp_path)
    text = json.dumps({"errors": [{"message": "long\n" * 20_000}]}).encode()
    with pytest.raises(RegistryError) as refused:
        repository_of(serve(lambda head, client: response(text, "409 Conflict"))).manifest("1")
    for error in (raised, refused):
        assert len(str(error.value)) < 1500
        assert "\n" not in str(error.value)
