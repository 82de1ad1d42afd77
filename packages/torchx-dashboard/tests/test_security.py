"""Requests of other hosts, pages and users are refused; all answers have the security headers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import dashboard_helpers as helpers
import pytest

from torchx_dashboard.serving import address_of, listening_socket, write_redirect
from torchx_specs.errors import BackendError


def status_of(path: str = "/api/info", method: str = "GET", **headers: str) -> int:
    async def request() -> int:
        async with helpers.client_of(hosts=["hub.example.com"]) as client:
            given = {name.replace("_", "-"): value.encode() for name, value in headers.items()}
            answer = await client.request(method, path, headers=given)
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "DENY"
            return int(answer.status_code)

    return int(helpers.run(request()))


@pytest.mark.parametrize("host", ["localhost:1", "[::1]:8", "127.0.0.1", "hub.example.com"])
def test_request_to_an_allowed_host_is_answered(host: str) -> None:
    assert status_of(Host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[", "evil@127.0.0.1"]
)
@pytest.mark.parametrize("path", ["/", "/worker.js", "/api/info"])
def test_request_to_another_host_is_refused(host: str, path: str) -> None:
    assert status_of(path, Host=host) == 421


@pytest.mark.parametrize("token", ["", "the-toke", "the-token ", "THE-TOKEN", "é"])
def test_wrong_token_is_refused(token: str) -> None:
    assert status_of(X_TorchX_Token=token) == 401


def test_token_in_the_address_or_a_cookie_is_refused() -> None:
    path = "/api/info?token=the-token&X-TorchX-Token=the-token"
    assert status_of(path, X_TorchX_Token="", Cookie="X-TorchX-Token=the-token") == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "file://", "http://localhost.x"])
def test_request_of_another_origin_is_refused(origin: str) -> None:
    assert status_of(Origin=origin) == 403


def test_request_of_the_own_origin_is_answered() -> None:
    assert status_of(Origin="http://127.0.0.1:8000") == 200


def test_page_needs_no_token_but_any_other_method_does() -> None:
    assert status_of("/", X_TorchX_Token="") == 200
    assert status_of("/", "POST", X_TorchX_Token="") == 401


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc"]
)
def test_only_files_of_the_front_end_are_served(path: str) -> None:
    assert status_of(path) == 404


def test_redirect_is_readable_by_its_user_only_and_cannot_be_broken_by_the_address() -> None:
    path = write_redirect("http://127.0.0.1:1/#token=</script><script>x")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    text = Path(path).read_text("utf-8")
    assert text.count("<script>") == 1
    assert "no-referrer" in text


def test_second_dashboard_on_a_port_is_refused() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first, "/proxy/") == f"http://127.0.0.1:{port}/proxy/"
        with pytest.raises(BackendError, match=f"port {port}: Address already in use"):
            listening_socket("127.0.0.1", port)
