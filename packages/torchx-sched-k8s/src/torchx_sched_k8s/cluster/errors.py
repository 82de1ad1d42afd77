"""Errors of requests to a cluster, with readable messages."""

from __future__ import annotations

import json
import re

from torchx_specs.errors import BackendError, RequestError, one_line

_RBAC = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_NO_NAMESPACE = re.compile(r'namespaces? "([^"]+)" not found')


class NoClusterError(BackendError):
    """The configuration of the cluster is missing or unusable, or no valid answer arrives."""


class LostConnectionError(NoClusterError):
    """The connection failed or was lost; ``__cause__`` is the library's error."""


class ApiError(BackendError):
    """The cluster refuses a request (HTTP status 300 or higher).

    Attributes:
        status: HTTP status code.
        reason: The API's reason, such as ``NotFound``; empty if the cluster gives none.
        message: The message in the cluster's response.
        retry_after: Seconds to wait before the next request, from the header ``Retry-After``.
    """

    def __init__(self, text: str, status: int = 0, reason: str = "", message: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = 0.0


class RefusedRequestError(ApiError, RequestError):
    """The cluster refuses a request because the request is invalid."""

    exit_code = 2


def refusal(action: str, status: int, body: bytes, credentials: str = "") -> ApiError:
    """Convert a response with an error status to an ApiError.

    Args:
        action: The action in error messages, as in "cannot <action>".
        status: HTTP status code.
        body: The response, usually a ``Status`` object.
        credentials: Description of the credentials, for the message of status 401.
    """
    message, reason = one_line(body), ""
    try:
        response = json.loads(body)
        message, reason = one_line(response["message"]), str(response.get("reason") or "")
    except (ValueError, KeyError, TypeError):
        pass
    kind: type[ApiError] = ApiError
    text = f"cannot {action}: {message or f'HTTP status {status}'}"
    if status == 401:
        text = (
            f"cannot {action}: the cluster does not accept the credentials of"
            f" {credentials or 'the context'} ({message or 'Unauthorized'});"
            " has the token expired? log in again"
        )
    elif status == 403:
        text = f"cannot {action}: {_forbidden(message)}"
    elif status == 404:
        missing = _NO_NAMESPACE.search(message)
        if missing:
            kind = RefusedRequestError
            text = (
                f"cannot {action}: namespace '{missing[1]}' does not exist; create it"
                f" (kubectl create namespace {missing[1]}), or set the option namespace"
            )
    elif status == 413 or "too large" in message or "larger than max" in message:
        kind = RefusedRequestError
        text = (
            f"cannot {action}: the object is larger than the cluster accepts ({message}); pass"
            " large arguments in a file, a workspace or a volume"
        )
    elif status in (400, 422):
        kind = RefusedRequestError
        text = f"cannot {action}: the cluster rejects the request: {message}"
    return kind(text, status, reason, message)


def _forbidden(message: str) -> str:
    found = _RBAC.search(message)
    if not found:
        return message  # refused by a quota, a webhook or a security policy, not by RBAC
    group = f" (API group {found['group']})" if found["group"] else ""
    where = f" in namespace {found['namespace']}" if found["namespace"] else " in the cluster"
    return (
        f"RBAC forbids {found['user']} to {found['verb']} {found['resource']}{group}{where};"
        " ask for a role that allows it"
    )
