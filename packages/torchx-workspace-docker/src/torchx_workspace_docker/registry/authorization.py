"""Authorization of requests to a registry: Basic authentication, or tokens for repositories.

The token protocol is defined in https://distribution.github.io/distribution/spec/auth/token/ and
https://distribution.github.io/distribution/spec/auth/oauth/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

from urllib3.exceptions import HTTPError

from torchx_workspace_docker.references import is_loopback
from torchx_workspace_docker.registry.credentials import Credentials, credentials_for
from torchx_workspace_docker.registry.transport import (
    RefusalError,
    RegistryError,
    Response,
    origin,
    unreachable,
)

#: The scopes of a request's token, such as ``repository:jobs/image:pull``.
Scopes = tuple[str, ...]

#: A token becomes the value of a header, so it must not contain spaces or line ends.
_VALID_TOKEN = re.compile(r"[\x21-\x7e]+")


class Authorizer:
    """Obtains and caches the ``Authorization`` headers for a registry.

    Args:
        registry: The registry's name, by which its credentials are found.
        insecure: Whether credentials may be sent without TLS if the registry does not use TLS.
    """

    def __init__(self, registry: str, insecure: bool) -> None:
        self._registry = registry
        self._insecure = insecure
        self._basic = ""
        self._tokens: dict[Scopes, str] = {}

    @cached_property
    def _credentials(self) -> Credentials | None:
        return credentials_for(self._registry)

    def header(self, scopes: Scopes) -> str:
        """Return the header for requests with these scopes; empty before :meth:`authorize`."""
        return self._tokens.get(scopes) or self._basic

    def authorize(
        self, challenge: str, scopes: Scopes, url: str, send: Callable[..., Response]
    ) -> None:
        """Obtain the header that a registry requires; :meth:`header` returns it afterwards.

        Args:
            challenge: The header ``WWW-Authenticate`` of the registry's response.
            scopes: The scopes that the request needs.
            url: The URL whose response had the challenge.
            send: Sends a request for a token; has the parameters of :meth:`Transport.request`.

        Raises:
            RegistryError: There are no credentials, they are not accepted, or the challenge or the
                token is not valid.
            WorkspaceError: The credentials cannot be read.
        """
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            if self._credentials is None:
                raise RegistryError(
                    f"the registry {self._registry} requires credentials;"
                    f" run: docker login {self._registry}"
                )
            self._basic = self._credentials.header
            return
        parameters = parse_keqv_list(
            [item for item in parse_http_list(rest) if "=" in item and not item.endswith("=")]
        )
        if scheme.lower() != "bearer" or "realm" not in parameters:
            raise RegistryError(
                f"the registry {self._registry} requires an unknown kind of authentication:"
                f" '{challenge:.200}'"
            )
        has_tls = origin(url)[0] == "https"
        token = self._request_token(parameters, scopes, self._insecure and not has_tls, send)
        self._tokens[scopes] = f"Bearer {token}"

    def explain_refusal(self) -> str:
        """Return the likely reason of a refusal, and the remedy."""
        if self._credentials is None:
            reason = "there are no credentials"
        else:
            reason = f"the credentials of '{self._credentials.user}' do not allow it"
        return f"{reason}; run: docker login {self._registry}"

    def _request_token(
        self,
        parameters: Mapping[str, str],
        scopes: Scopes,
        insecure: bool,
        send: Callable[..., Response],
    ) -> str:
        realm, service = parameters["realm"], parameters.get("service", "")
        scheme, host, _ = origin(realm)
        # A registry on this machine may be reached without TLS, but must not direct the credentials
        # to another machine without TLS.
        leaves_machine = is_loopback(self._registry) and not is_loopback(host)
        if scheme != "https" and (not insecure or leaves_machine):
            raise RegistryError(
                f"the registry {self._registry} requires credentials to be sent without TLS,"
                f" to {realm}"
            )
        credentials = self._credentials
        try:
            if credentials is not None and not credentials.user:
                form = {
                    "grant_type": "refresh_token",
                    "client_id": "torchx",
                    "refresh_token": credentials.secret,
                    "service": service,
                    "scope": " ".join(scopes),
                }
                form_type = {"Content-Type": "application/x-www-form-urlencoded"}
                # The transport follows no redirect of POST, so no other server gets the token.
                response = send("POST", realm, body=urlencode(form).encode(), headers=form_type)
            else:
                headers = {"Authorization": credentials.header} if credentials else {}
                query = urlencode([("service", service), *(("scope", s) for s in scopes)])
                separator = "&" if urlsplit(realm).query else "?"
                response = send("GET", f"{realm}{separator}{query}", headers=headers)
        except HTTPError as e:
            raise unreachable(self._registry, f"token from {realm}", e) from e
        if response.status != 200:
            user = f"the credentials of '{credentials.user}'" if credentials else "anonymous access"
            raise RefusalError(
                f"the registry {self._registry} does not accept {user} for {' '.join(scopes)}"
                f" ({realm} answers {response.status}); run: docker login {self._registry}"
            )
        return _token(response.data, realm)


def _token(data: bytes, realm: str) -> str:
    try:
        answer: Any = json.loads(data)
        token = answer.get("token") or answer["access_token"]
    except (ValueError, KeyError, AttributeError, RecursionError):
        raise RegistryError(f"the response of {realm} contains no token") from None
    if not isinstance(token, str) or not _VALID_TOKEN.fullmatch(token):
        raise RegistryError(f"the response of {realm} contains a token that is not valid")
    return token
