"""Credentials for registries, as ``docker login`` keeps them."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_specs.errors import WorkspaceError
from torchx_workspace_docker.registry.ecr import PUBLIC, ecr_login

_DOCKER_HUB = "https://index.docker.io/v1/"
_HELPER_TIMEOUT = 60
_NO_CREDENTIALS = "credentials not found"


@dataclass(frozen=True, repr=False)
class Credentials:
    """A user of a registry.

    Args:
        user: the name, empty if ``secret`` is a token that identifies
        secret: password or token
    """

    user: str
    secret: str

    @property
    def header(self) -> str:
        """The value of ``Authorization`` by the scheme Basic."""
        text = f"{self.user}:{self.secret}".encode()
        return "Basic " + base64.b64encode(text).decode()


def credentials_for(registry: str) -> Credentials | None:
    """Returns what the Docker configuration has for a registry, None if nothing; for Amazon's what
    AWS gives.

    Raises:
        WorkspaceError: the configuration is no JSON, a credential helper fails, or AWS gives none
    """
    config = _config()
    names = [registry, f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/"]
    if registry == "docker.io":
        names = [_DOCKER_HUB, "index.docker.io", *names]
    helpers = config.get("credHelpers") or {}
    helper = next((helpers[name] for name in names if name in helpers), config.get("credsStore"))
    if helper:
        for name in names[:2]:
            found = _from_helper(str(helper), name)
            if found:
                return found
    auths = config.get("auths") or {}
    entry = next(((auths[name], name) for name in names if auths.get(name)), None)
    try:
        # before what docker login has left: Amazon's tokens expire after some hours
        login = ecr_login(registry)
    except WorkspaceError:
        # public images need no login
        if entry is None and registry != PUBLIC:
            raise
        login = None
    if login is not None:
        return Credentials(*login)
    return _from_entry(*entry) if entry is not None else None


def _config() -> Mapping[str, Any]:
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    path = os.path.join(folder, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise WorkspaceError(f"cannot read {path}: {e}") from None
    if not isinstance(config, dict):
        raise WorkspaceError(f"{path} holds no JSON object")
    return config


def _from_entry(entry: Mapping[str, Any], name: str) -> Credentials | None:
    if entry.get("identitytoken"):
        return Credentials("", str(entry["identitytoken"]))
    if entry.get("auth"):
        try:
            user, _, secret = base64.b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise WorkspaceError(
                f"the credentials of {name} in Docker's config.json are not readable;"
                f" docker login {name}"
            ) from None
        return Credentials(user, secret.rstrip("\0"))
    if entry.get("username"):
        return Credentials(str(entry["username"]), str(entry.get("password") or ""))
    return None


def _from_helper(helper: str, name: str) -> Credentials | None:
    import subprocess

    if not re.fullmatch(r"[A-Za-z0-9_.-]+", helper):
        raise WorkspaceError(f"{helper!r} in Docker's config.json is no credential helper's name")
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=name,
            capture_output=True,
            text=True,
            timeout=_HELPER_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise WorkspaceError(f"the credential helper {program} does not work: {e}") from None
    if done.returncode:
        said = " ".join((done.stdout or done.stderr).split())
        if _NO_CREDENTIALS in said:
            return None
        raise WorkspaceError(f"the credential helper {program} has nothing for {name}: {said}")
    try:
        found = json.loads(done.stdout)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError):
        raise WorkspaceError(f"the credential helper {program} answers no credentials") from None
    return Credentials("" if user == "<token>" else user, secret)
