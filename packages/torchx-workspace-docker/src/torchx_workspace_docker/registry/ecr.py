"""Requests tokens for Amazon's registries (ECR), so that ``docker login`` is not needed.

boto3 is not a declared dependency, because users of AWS have it installed.
"""

from __future__ import annotations

import base64
import re

from torchx_specs.errors import WorkspaceError, one_line

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
