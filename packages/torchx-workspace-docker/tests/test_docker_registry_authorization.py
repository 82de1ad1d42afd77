"""Tests of a registry's authentication challenges, without a registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from urllib3.response import HTTPResponse

from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.connection import Connection
from torchx_workspace_docker.registry.transport import RegistryError, Response

URL = "https://example.com/v2/a/manifests/1"
PULL = ("repository:a:pull",)


class Answers(Connection):
    """A connection whose registry requires authorization, and whose token service answers.

    Args:
        challenge: The registry's challenge.
        insecure: Whether the registry may be reached without TLS.

    Attributes:
        urls: The URLs that were requested from other servers.
        headers: The headers ``Authorization`` of the requests to the registry.
    """

    def __init__(self, challenge: str, insecure: bool = False) -> None:
        super().__init__(Reference("example.com", "a", "1"), insecure)
        self._scheme = "https"
        self.urls: list[str] = []
        self.headers: list[str] = []
        self._challenge = challenge

    def _send(self, method: str, url: str, **options: Any) -> Response:
        authorization = options["headers"].get("Authorization", "")
        if not self._is_own(url):
            self.urls.append(url)
            return Response(200, {}, url, json.dumps({"token": "t"}).encode(), HTTPResponse())
        self.headers.append(authorization)
        headers = {"WWW-Authenticate": self._challenge}
        return Response(200 if authorization else 401, headers, url, b"", HTTPResponse())


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


@pytest.mark.parametrize(
    "challenge",
    [
        'Bearer realm="https://auth.example.com/token",service="reg",scope="repository:a:pull,push"',
        "bearer realm=https://auth.example.com/token, service=reg, error=",
    ],
)
def test_token_is_requested_from_the_realm_for_the_scopes(challenge: str) -> None:
    connection = Answers(challenge)
    for scopes in (PULL, PULL, (*PULL, "repository:b:pull"), ("repository:b:pull",)):
        connection.request("GET", URL, scopes)
    token = "Bearer t"
    assert connection.headers == ["", token, token, "", token, "", token]
    start = "https://auth.example.com/token?service=reg&scope=repository%3A"
    assert connection.urls == [
        f"{start}a%3Apull",
        f"{start}a%3Apull&scope=repository%3Ab%3Apull",
        f"{start}b%3Apull",
    ]


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
    challenge: str, message: str, insecure: bool
) -> None:
    # A registry that uses TLS must not lead to a token service without TLS, even if it is insecure.
    connection = Answers(challenge, insecure)
    with pytest.raises(RegistryError, match=message):
        connection.request("GET", URL, PULL)
    assert connection.urls == []
