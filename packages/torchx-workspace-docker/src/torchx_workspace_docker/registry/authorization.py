"""Authorization of requests to a registry: Basic authentication, or tokens for repositories.

The token protocol is that of https://distribution.github.io/distribution/spec/auth/token/ and
https://distribution.github.io/distribution/spec/auth/oauth/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

import urllib3
from urllib3.exceptions import HTTPError

from torchx_workspace_docker.registry.credentials import Credentials, credentials_for
from torchx_workspace_docker.registry.errors import RegistryError, unreachable


class Authorizer:
    """Obtains and caches the ``Authorization`` headers for a registry.

    Args:
        registry: The registry's name, with which its credentials are looked up.
        insecure: Whether credentials may be sent without TLS.
    """

    def __init__(self, registry: str, insecure: bool) -> None:
        self._registry = registry
        self._insecure = insecure
        self._basic = ""
        self._tokens: dict[tuple[str, str], str] = {}
        self._credentials: Credentials | None = None
        self._has_looked_up = False

    def header(self, repository: str, source: str = "") -> str:
        """Return the header's value for requests to a repository, or an empty string.

        Args:
            repository: The repository.
            source: A second repository, from which a blob is mounted; empty for none.
        """
        return self._tokens.get((repository, source)) or self._basic

    def authorize(
        self, challenge: str, repository: str, source: str, pool: urllib3.PoolManager
    ) -> None:
        """Obtain the header that a registry requires.

        Args:
            challenge: ``WWW-Authenticate`` of the registry's response.
            repository: The repository.
            source: A second repository, from which a blob is mounted; empty for none.
            pool: The connections for the request of a token.

        Raises:
            RegistryError: There are no credentials, or they are not accepted.
        """
        if not self._has_looked_up:
            self._credentials = credentials_for(self._registry)
            self._has_looked_up = True
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
                f" '{challenge}'"
            )
        scopes = [f"repository:{repository}:pull,push"]
        if source:
            scopes.append(f"repository:{source}:pull")
        token = self._request_token(parameters, scopes, pool)
        self._tokens[repository, source] = f"Bearer {token}"

    def explain_refusal(self) -> str:
        """Return why the registry may refuse a request, and what to do."""
        if self._credentials is None:
            reason = "there are no credentials"
        else:
            reason = f"the credentials of '{self._credentials.user}' do not allow it"
        return f"{reason}; run: docker login {self._registry}"

    def _request_token(
        self, parameters: Mapping[str, str], scopes: list[str], pool: urllib3.PoolManager
    ) -> str:
        realm, service = parameters["realm"], parameters.get("service", "")
        if urlsplit(realm).scheme != "https" and not self._insecure:
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
                response = pool.request("POST", realm, fields=form, encode_multipart=False)
            else:
                headers = {"Authorization": credentials.header} if credentials else {}
                query = urlencode([("service", service), *(("scope", s) for s in scopes)])
                separator = "&" if urlsplit(realm).query else "?"
                response = pool.request("GET", f"{realm}{separator}{query}", headers=headers)
        except HTTPError as e:
            raise unreachable(self._registry, f"token from {realm}", e) from e
        if response.status != 200:
            user = f"the credentials of '{credentials.user}'" if credentials else "anonymous access"
            raise RegistryError(
                f"the registry {self._registry} does not accept {user}"
                f" ({realm} answers {response.status}); run: docker login {self._registry}"
            )
        try:
            answer = json.loads(response.data)
            return str(answer.get("token") or answer["access_token"])
        except (ValueError, KeyError):
            raise RegistryError(f"the response of {realm} contains no token") from None
