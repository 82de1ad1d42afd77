"""Tests of tokens for Amazon's registries."""

from __future__ import annotations

import base64
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.errors import WorkspaceError
from torchx_workspace_docker.engine.client import registry_login
from torchx_workspace_docker.registry.credentials import credentials_for, ecr_login

REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


class Boto3Double:
    """A double of the part of boto3 that gives tokens.

    Attributes:
        requests: Service and region of each request.
        error: The error that requests raise; None if they succeed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[tuple[str, str]] = []
        self.error: Exception | None = None
        exceptions = types.ModuleType("botocore.exceptions")
        for name in ("BotoCoreError", "ClientError"):
            setattr(exceptions, name, type(name, (Exception,), {}))
        self.failure: type[Exception] = exceptions.ClientError
        session = types.ModuleType("boto3.session")
        session.Session = lambda: self  # type: ignore[attr-defined]
        for name, module in {
            "boto3": types.ModuleType("boto3"),
            "boto3.session": session,
            "botocore": types.ModuleType("botocore"),
            "botocore.exceptions": exceptions,
        }.items():
            monkeypatch.setitem(sys.modules, name, module)

    def client(self, service: str, region_name: str) -> Any:
        self.requests.append((service, region_name))
        token = base64.b64encode(b"AWS:pass:word").decode()
        data = {"authorizationToken": token}

        def answer() -> dict[str, Any]:
            if self.error is not None:
                raise self.error
            return {"authorizationData": [data] if service == "ecr" else data}

        return types.SimpleNamespace(get_authorization_token=answer)


@pytest.fixture
def boto3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Boto3Double:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return Boto3Double(monkeypatch)


def write_docker_login(folder: Path) -> None:
    """Write a Docker configuration as ``docker login`` does."""
    auth = base64.b64encode(b"AWS:old").decode()
    (folder / "config.json").write_text(json.dumps({"auths": {REGISTRY: {"auth": auth}}}))


def test_token_comes_from_the_region_of_the_registry(boto3: Boto3Double) -> None:
    found = credentials_for(REGISTRY)
    assert found is not None
    assert (found.user, found.secret) == ("AWS", "pass:word")
    assert credentials_for("public.ecr.aws") == found
    assert boto3.requests == [("ecr", "eu-west-1"), ("ecr-public", "us-east-1")]


@pytest.mark.parametrize(
    "registry",
    [
        "example.com",
        "docker.io",
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
        "x.123456789012.dkr.ecr.eu-west-1.amazonaws.com",
    ],
)
def test_other_registries_get_no_token(boto3: Boto3Double, registry: str) -> None:
    assert credentials_for(registry) is None
    assert boto3.requests == []


def test_token_takes_precedence_over_docker_login(boto3: Boto3Double, tmp_path: Path) -> None:
    write_docker_login(tmp_path)
    found = credentials_for(REGISTRY)
    assert found is not None
    assert found.secret == "pass:word"


def test_docker_login_is_used_if_aws_gives_no_token(boto3: Boto3Double, tmp_path: Path) -> None:
    boto3.error = boto3.failure("no credentials")
    with pytest.raises(WorkspaceError, match=rf"cannot log in to {REGISTRY}: no credentials"):
        credentials_for(REGISTRY)
    assert credentials_for("public.ecr.aws") is None
    write_docker_login(tmp_path)
    found = credentials_for(REGISTRY)
    assert found is not None
    assert found.secret == "old"


def test_engine_gets_the_token_for_ecr_only(boto3: Boto3Double) -> None:
    assert registry_login(f"{REGISTRY}/train:1") == {"username": "AWS", "password": "pass:word"}
    assert registry_login("example.com/train:1") is None
    assert registry_login("busybox") is None


def test_ecr_login_without_boto3_returns_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    assert ecr_login(REGISTRY) is None
