"""Tests of a registry's authentication challenges, without a registry."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchx_workspace_docker.registry.authorization import Authorizer
from torchx_workspace_docker.registry.errors import RegistryError


class PoolDouble:
    """Connections to a token service that records the URLs."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def request(self, method: str, url: str, **options: Any) -> Any:
        self.urls.append(url)
        return SimpleNamespace(status=200, data=json.dumps({"token": "t"}).encode())


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return PoolDouble()


@pytest.mark.parametrize(
    "challenge",
    [
        'Bearer realm="https://auth.example.com/token",service="reg",scope="repository:a:pull,push"',
        "bearer realm=https://auth.example.com/token, service=reg, error=",
    ],
)
def test_token_is_requested_from_the_realm_for_each_repository(challenge: str, pool: Any) -> None:
    authorizer = Authorizer("example.com", insecure=False)
    assert authorizer.header("a") == ""
    authorizer.authorize(challenge, "a", "", pool)
    authorizer.authorize(challenge, "a", "b", pool)
    assert authorizer.header("a") == authorizer.header("a", "b") == "Bearer t"
    assert authorizer.header("b") == ""
    first = "https://auth.example.com/token?service=reg&scope=repository%3Aa%3Apull%2Cpush"
    assert pool.urls == [first, f"{first}&scope=repository%3Ab%3Apull"]


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        ("Basic realm=x", "requires credentials; run: docker login example.com"),
        ("Negotiate", "unknown kind of authentication: 'Negotiate'"),
        ("Bearer service=x", "unknown kind of authentication"),
        ("Bearer realm=http://x/", "without TLS, to http://x/"),
    ],
)
def test_challenge_that_cannot_be_answered_is_an_error(
    challenge: str, message: str, pool: Any
) -> None:
    with pytest.raises(RegistryError, match=message):
        Authorizer("example.com", insecure=False).authorize(challenge, "a", "", pool)
    assert pool.urls == []
