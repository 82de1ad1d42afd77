"""Tests of a registry's authentication challenges, without a registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from urllib3.response import HTTPResponse

from torchx_workspace_docker.registry.authorization import Authorizer
from torchx_workspace_docker.registry.transport import RegistryError, Response

URL = "https://example.com/v2/a/manifests/1"
PULL = ("repository:a:pull",)


class SenderDouble:
    """A token service that records the URLs of requests."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def __call__(self, method: str, url: str, **options: Any) -> Response:
        self.urls.append(url)
        return Response(200, {}, url, json.dumps({"token": "t"}).encode(), HTTPResponse())


@pytest.fixture
def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SenderDouble:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return SenderDouble()


@pytest.mark.parametrize(
    "challenge",
    [
        'Bearer realm="https://auth.example.com/token",service="reg",scope="repository:a:pull,push"',
        "bearer realm=https://auth.example.com/token, service=reg, error=",
    ],
)
def test_token_is_requested_from_the_realm_for_the_scopes(
    challenge: str, send: SenderDouble
) -> None:
    authorizer = Authorizer("example.com", insecure=False)
    both = (*PULL, "repository:b:pull")
    assert authorizer.header(PULL) == ""
    authorizer.authorize(challenge, PULL, URL, send)
    authorizer.authorize(challenge, both, URL, send)
    assert authorizer.header(PULL) == authorizer.header(both) == "Bearer t"
    assert authorizer.header(("repository:b:pull",)) == ""
    first = "https://auth.example.com/token?service=reg&scope=repository%3Aa%3Apull"
    assert send.urls == [first, f"{first}&scope=repository%3Ab%3Apull"]


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        ("Basic realm=x", "requires credentials; run: docker login example.com"),
        ("Negotiate", "unknown kind of authentication: 'Negotiate'"),
        ("Bearer service=x", "unknown kind of authentication"),
        ("Bearer realm=http://x/", "without TLS, to http://x/"),
    ],
)
@pytest.mark.parametrize("insecure", [False, True])
def test_challenge_that_cannot_be_answered_is_an_error(
    challenge: str, message: str, insecure: bool, send: SenderDouble
) -> None:
    # A registry that uses TLS must not lead to a token service without TLS, even if it is insecure.
    with pytest.raises(RegistryError, match=message):
        Authorizer("example.com", insecure=insecure).authorize(challenge, PULL, URL, send)
    assert send.urls == []
