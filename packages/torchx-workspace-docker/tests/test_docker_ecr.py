"""Logging in to Amazon's registries."""

from __future__ import annotations

import base64
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.errors import WorkspaceError
from torchx_workspace_docker.registry.credentials import credentials_for
from torchx_workspace_docker.registry.ecr import ecr_login

REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


class Boto3Double:
    """What of boto3 is asked for a token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str]] = []
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
        self.asked.append((service, region_name))
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


def logged_in(folder: Path) -> None:
    """What docker login has left."""
    auth = base64.b64encode(b"AWS:old").decode()
    (folder / "config.json").write_text(json.dumps({"auths": {REGISTRY: {"auth": auth}}}))


def test_the_token_of_the_registrys_region(boto3: Boto3Double) -> None:
    found = credentials_for(REGISTRY)
    assert found is not None
    assert (found.user, found.secret) == ("AWS", "pass:word")
    assert credentials_for("public.ecr.aws") == found
    assert boto3.asked == [("ecr", "eu-west-1"), ("ecr-public", "us-east-1")]


@pytest.mark.parametrize(
    "registry",
    [
        "example.com",
        "docker.io",
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
        "x.123456789012.dkr.ecr.eu-west-1.amazonaws.com",
    ],
)
def test_no_other_registry_gets_a_token(boto3: Boto3Double, registry: str) -> None:
    assert credentials_for(registry) is None
    assert boto3.asked == []


def test_a_new_token_comes_before_an_old_login(boto3: Boto3Double, tmp_path: Path) -> None:
    logged_in(tmp_path)
    found = credentials_for(REGISTRY)
    assert found is not None
    assert found.secret == "pass:word"


def test_without_a_token_the_login_counts(boto3: Boto3Double, tmp_path: Path) -> None:
    boto3.error = boto3.failure("no credentials")
    with pytest.raises(WorkspaceError, match=rf"cannot log in to {REGISTRY}: no credentials"):
        credentials_for(REGISTRY)
    assert credentials_for("public.ecr.aws") is None
    logged_in(tmp_path)
    found = credentials_for(REGISTRY)
    assert found is not None
    assert found.secret == "old"


def test_the_engine_is_given_the_token_for_amazons_registries_only(boto3: Boto3Double) -> None:
    from torchx_workspace_docker.engine.build import _login

    assert _login(f"{REGISTRY}/train:1") == {"username": "AWS", "password": "pass:word"}
    assert _login("example.com/train:1") is None
    assert _login("busybox") is None


def test_without_boto3_there_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    assert ecr_login(REGISTRY) is None
