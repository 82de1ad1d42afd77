"""Credentials for registries, from the Docker configuration or from AWS."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_specs.errors import WorkspaceError, one_line

_DOCKER_HUB = "https://index.docker.io/v1/"
_HELPER_TIMEOUT = 60
#: Part of the message of a credential helper that has no credentials for the registry.
_NO_CREDENTIALS = "credentials not found"


@dataclass(frozen=True, repr=False)
class Credentials:
    """The credentials of a user of a registry.

    Args:
        user: The user's name; empty if ``secret`` is an identity token.
        secret: A password or a token.
    """

    user: str
    secret: str

    @property
    def header(self) -> str:
        """The value of the header ``Authorization`` for Basic authentication."""
        text = f"{self.user}:{self.secret}".encode()
        return "Basic " + base64.b64encode(text).decode()


def credentials_for(registry: str) -> Credentials | None:
    """Return the credentials for a registry, or None if there are none.

    The credentials come from the first of these that has any: a credential helper, AWS (for
    registries of ECR), ``docker login``.

    Raises:
        WorkspaceError: The Docker configuration is not valid, a credential helper fails, or AWS
            gives no token.
    """
    config = _config()
    names = [registry, f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/"]
    if registry == "docker.io":
        names = [_DOCKER_HUB, "index.docker.io", *names]
    helpers = config.get("credHelpers") or {}
    helper = next((helpers[name] for name in names if name in helpers), config.get("credsStore"))
    if helper:
        for name in names[:2]:
            credentials = _from_helper(str(helper), name)
            if credentials:
                return credentials
    auths = config.get("auths") or {}
    entry = next(((auths[name], name) for name in names if auths.get(name)), None)
    try:
        # AWS comes before docker login, whose token for ECR may have expired.
        login = ecr_login(registry)
    except WorkspaceError:
        # Public images need no login, and docker login may have credentials.
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
        raise WorkspaceError(f"cannot read the Docker configuration {path}: {e}") from None
    if not isinstance(config, dict):
        raise WorkspaceError(f"the Docker configuration {path} is not a JSON object")
    return config


def _from_entry(entry: Mapping[str, Any], name: str) -> Credentials | None:
    if entry.get("identitytoken"):
        return Credentials("", str(entry["identitytoken"]))
    if entry.get("auth"):
        try:
            user, _, secret = base64.b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise WorkspaceError(
                f"the credentials for {name} in Docker's config.json are not valid;"
                f" run: docker login {name}"
            ) from None
        return Credentials(user, secret.rstrip("\0"))
    if entry.get("username"):
        return Credentials(str(entry["username"]), str(entry.get("password") or ""))
    return None


def _from_helper(helper: str, name: str) -> Credentials | None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", helper):
        raise WorkspaceError(
            f"credential helper {helper!r} in Docker's config.json is not a valid name (letters,"
            " digits, '_', '.', '-')"
        )
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
        raise WorkspaceError(f"cannot run the credential helper {program}: {e}") from None
    if done.returncode:
        message = one_line(done.stdout or done.stderr)
        if _NO_CREDENTIALS in message:
            return None
        raise WorkspaceError(f"the credential helper {program} failed for {name}: {message}")
    try:
        answer = json.loads(done.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise WorkspaceError(
            f"the output of the credential helper {program} is not valid: it must be JSON with"
            " Username and Secret"
        ) from None
    return Credentials("" if user == "<token>" else user, secret)


#: Amazon's registry of public images. Only one region issues tokens for it.
PUBLIC = "public.ecr.aws"
_PUBLIC_REGION = "us-east-1"
_PRIVATE = re.compile(
    r"[0-9]{12}\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|on\.aws)"
)


def is_ecr(registry: str) -> bool:
    """Return True if a registry belongs to ECR."""
    return registry == PUBLIC or _PRIVATE.fullmatch(registry) is not None


def ecr_login(registry: str) -> tuple[str, str] | None:
    """Return user and password for a registry of ECR; they are valid for some hours.

    Args:
        registry: The host name of the registry.

    Returns:
        The user and the password; None if the registry does not belong to ECR, or if boto3 is not
        installed.

    Raises:
        WorkspaceError: AWS gives no token.
    """
    private = _PRIVATE.fullmatch(registry)
    if private is None and registry != PUBLIC:
        return None
    try:
        from boto3.session import Session
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return None
    try:
        session = Session()
        if private is not None:
            answer = session.client("ecr", region_name=private[1]).get_authorization_token()
            token = answer["authorizationData"][0]["authorizationToken"]
        else:
            client = session.client("ecr-public", region_name=_PUBLIC_REGION)
            token = client.get_authorization_token()["authorizationData"]["authorizationToken"]
    except (BotoCoreError, ClientError) as e:
        raise WorkspaceError(f"cannot log in to {registry}: {one_line(e)}") from None
    user, _, password = base64.b64decode(token).decode().partition(":")
    return user, password
