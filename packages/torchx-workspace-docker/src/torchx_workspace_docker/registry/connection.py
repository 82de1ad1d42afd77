"""HTTP requests to a registry, with or without TLS, with authorization and retries.

Authorization is Basic authentication, or a token for repositories. The token protocol is defined in
https://distribution.github.io/distribution/spec/auth/token/ and
https://distribution.github.io/distribution/spec/auth/oauth/.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, ReadTimeoutError

from torchx_specs.errors import one_line
from torchx_workspace_docker.references import Reference, is_loopback
from torchx_workspace_docker.registry import transport
from torchx_workspace_docker.registry.credentials import Credentials, credentials_for
from torchx_workspace_docker.registry.transport import (
    Body,
    RefusalError,
    RegistryError,
    Response,
    Transport,
    checked_url,
    origin,
    unreachable,
)

#: The largest number of attempts of a request.
ATTEMPTS = 5
#: The pause after the first failure, in seconds; it doubles with each further failure.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CERTIFICATE_ALERTS = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
)

#: A token becomes the value of a header, so it must not contain spaces or line ends.
_VALID_TOKEN = re.compile(r"[\x21-\x7e]+")

#: The scopes of a request's token, such as ``repository:jobs/image:pull``.
Scopes = tuple[str, ...]

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Connection:
    """Sends requests to one registry.

    Args:
        reference: Any image in the registry; only its registry is used.
        insecure: Whether the registry may be reached without TLS; a registry of this machine always
            may.
        sleep: Function that waits for a number of seconds, between two attempts.
    """

    def __init__(
        self,
        reference: Reference,
        insecure: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.registry = reference.registry
        self._host = reference.host
        is_local = is_loopback(self._host)
        # The schemes to try. HTTP is the first one for a registry of this machine, because a failed
        # TLS handshake takes longer than a failed request.
        self._schemes = ["http", "https"] if is_local else ["https", "http"]
        self._is_insecure = insecure or is_local
        # The scheme of the registry; empty while it is unknown.
        self._scheme = "" if self._is_insecure else "https"
        self._own = Transport(self._host)
        # Other servers, such as the token service, never get the client certificate, and their
        # certificates are verified.
        self._others = Transport()
        self._sleep = sleep
        # The values of the header Authorization: of Basic authentication, and the tokens by scopes.
        self._basic = ""
        self._tokens: dict[Scopes, str] = {}

    @cached_property
    def _credentials(self) -> Credentials | None:
        return credentials_for(self.registry)

    def retry(self, call: Callable[[], T]) -> T:
        """Call a function, and repeat that while the registry is busy or does not answer.

        Raises:
            RegistryError: The function raised it in the last attempt, or it is not temporary.
        """
        pause = _FIRST_PAUSE
        for _ in range(ATTEMPTS - 1):
            try:
                return call()
            except RegistryError as e:
                if not e.may_retry:
                    raise
                self._sleep(min(_seconds(e.retry_after, pause), _LONGEST_PAUSE))
            pause *= 2
        return call()

    def request(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        *,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        expected: Collection[int] = (200, 201, 202, 204),
        stream: bool = False,
    ) -> Response:
        """Send a request once; obtain authorization if the registry requires it.

        Args:
            method: The HTTP method.
            url: A path of the registry, or an absolute URL.
            scopes: The authorization that the request needs.
            body: The content to send.
            headers: Headers to send.
            expected: The statuses with which a response is returned; other statuses are errors.
            stream: Whether the caller reads the content of the response.

        Raises:
            RegistryError: The registry refuses the request, does not answer, or does not accept the
                credentials; there are none; or the response or a redirect is not valid.
        """
        try:
            for is_authorized in (False, True):
                target = self.absolute(url)
                all_headers = dict(headers or {})
                # An upload may lead to another server's storage, which must not see the
                # credentials.
                authorization = self._tokens.get(scopes) or self._basic
                if authorization and self._is_own(target):
                    all_headers["Authorization"] = authorization
                response = self._send(method, target, body=body, headers=all_headers, stream=stream)
                # The target of a redirect must not ask for the credentials either.
                if response.status != 401 or is_authorized or not self._is_own(response.url):
                    break
                challenge = response.headers.get("WWW-Authenticate", "")
                self._authorize(challenge, scopes, response.url)
        except HTTPError as e:
            if any(f"_ALERT_{alert}" in str(e) for alert in _CERTIFICATE_ALERTS):
                raise RegistryError(
                    f"the registry {self.registry} requires a client certificate: put NAME.cert"
                    f" and NAME.key into {transport.CERTIFICATES}/{self._host}"
                ) from e
            raise unreachable(self.registry, f"{method} {urlsplit(url).path}", e) from e
        if response.status in expected:
            return response
        raise self._refused(f"{method} {urlsplit(url).path}", response)

    def absolute(self, url: str) -> str:
        """Return the URL of a path of the registry; return an absolute URL unchanged.

        Raises:
            urllib3.exceptions.HTTPError: It is unknown whether the registry uses TLS, and the
                registry does not answer.
        """
        if "://" in url:
            return url
        self._scheme = self._scheme or self._find_scheme()
        return f"{self._scheme}://{self._host}{url}"

    def _find_scheme(self) -> str:
        error = HTTPError()
        for scheme in self._schemes:
            try:
                status = self._own.request("GET", f"{scheme}://{self._host}/v2/").status
            except ReadTimeoutError:
                raise
            except HTTPError as e:
                error = e
                if "CERTIFICATE_VERIFY_FAILED" not in str(e):
                    continue
                self._own = Transport(self._host, verify=False)
                # urllib3 would repeat its own warning for every request.
                urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
                logger.warning("the certificate of the registry %s is not verified", self.registry)
                return scheme
            # A server with TLS answers 400 to a request without TLS.
            if scheme == "https" or status != 400:
                return scheme
        raise error

    def location(self, response: Response, requested: str) -> str:
        """Return the absolute URL in a response's ``Location``, by default the requested URL.

        Raises:
            RegistryError: The URL is not valid, or leads from https to http.
        """
        return checked_url(self.absolute(requested), response.headers.get("Location", requested))

    def _is_own(self, url: str) -> bool:
        """Return True if a URL has the registry's scheme, host and port."""
        return origin(url) == origin(self.absolute("/"))

    def _send(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        """Send a request to the registry or to another server, for example its token service.

        Redirects of ``GET`` and ``HEAD`` are followed, because blobs are often in another storage.
        Content and credentials are never sent to the target of a redirect on another server.
        """
        all_headers = dict(headers or {})
        for _ in range(_MAX_REDIRECTS):
            transport = self._own if self._is_own(url) else self._others
            response = transport.request(method, url, headers=all_headers, **options)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location or method not in ("GET", "HEAD"):
                return response
            target = checked_url(url, location)
            if origin(target) != origin(url):
                all_headers.pop("Authorization", None)
            url = target
        raise RegistryError(f"{url:.200} redirects more than {_MAX_REDIRECTS} times")

    def _authorize(self, challenge: str, scopes: Scopes, url: str) -> None:
        """Obtain the header that the registry requires.

        Args:
            challenge: The header ``WWW-Authenticate`` of the registry's response.
            scopes: The scopes that the request needs.
            url: The URL whose response had the challenge.

        Raises:
            RegistryError: There are no credentials, they are not accepted, or the challenge or the
                token is not valid.
            WorkspaceError: The credentials cannot be read.
        """
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            if self._credentials is None:
                raise RegistryError(
                    f"the registry {self.registry} requires credentials;"
                    f" run: docker login {self.registry}"
                )
            self._basic = self._credentials.header
            return
        parameters = parse_keqv_list(
            [item for item in parse_http_list(rest) if "=" in item and not item.endswith("=")]
        )
        if scheme.lower() != "bearer" or "realm" not in parameters:
            raise RegistryError(
                f"the registry {self.registry} requires an unknown kind of authentication:"
                f" '{challenge:.200}'"
            )
        is_insecure = self._is_insecure and origin(url)[0] != "https"
        token = self._request_token(parameters, scopes, is_insecure)
        self._tokens[scopes] = f"Bearer {token}"

    def _request_token(
        self, parameters: Mapping[str, str], scopes: Scopes, is_insecure: bool
    ) -> str:
        realm, service = parameters["realm"], parameters.get("service", "")
        scheme, host, _ = origin(realm)
        # A registry on this machine may be reached without TLS, but must not direct the credentials
        # to another machine without TLS.
        leaves_machine = is_loopback(self.registry) and not is_loopback(host)
        if scheme != "https" and (not is_insecure or leaves_machine):
            raise RegistryError(
                f"the registry {self.registry} requires credentials to be sent without TLS,"
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
                # No redirect of POST is followed, so no other server gets the token.
                response = self._send(
                    "POST", realm, body=urlencode(form).encode(), headers=form_type
                )
            else:
                headers = {"Authorization": credentials.header} if credentials else {}
                query = urlencode([("service", service), *(("scope", s) for s in scopes)])
                separator = "&" if urlsplit(realm).query else "?"
                response = self._send("GET", f"{realm}{separator}{query}", headers=headers)
        except HTTPError as e:
            raise unreachable(self.registry, f"token from {realm}", e) from e
        if response.status != 200:
            user = f"the credentials of '{credentials.user}'" if credentials else "anonymous access"
            raise RefusalError(
                f"the registry {self.registry} does not accept {user} for {' '.join(scopes)}"
                f" ({realm} answers {response.status}); run: docker login {self.registry}"
            )
        return _token(response.data, realm)

    def _refused(self, request: str, response: Response) -> RegistryError:
        """Return the error for a request that the registry refused.

        Args:
            request: The method and the path of the request.
            response: The registry's response.
        """
        status = response.status
        if status in (401, 403):
            reason = "there are no credentials"
            if self._credentials is not None:
                reason = f"the credentials of '{self._credentials.user}' do not allow it"
            return RefusalError(
                f"the registry {self.registry} refuses {request} ({status}): {reason};"
                f" run: docker login {self.registry}"
            )
        message = f"the registry {self.registry} answers {status} to {request}"
        is_busy = status == 429 or status >= 500
        return (RegistryError if is_busy else RefusalError)(
            message + _error_text(response),
            may_retry=is_busy,
            retry_after=response.headers.get("Retry-After", ""),
            status=status,
        )


def _seconds(retry_after: str, default: float) -> float:
    """Return ``Retry-After`` (a number or a date) in seconds; ``default`` if it is not valid."""
    try:
        return float(urllib3.Retry().parse_retry_after(retry_after))
    except (InvalidHeader, ValueError, OverflowError):
        return default


def _error_text(response: Response) -> str:
    try:
        errors = json.loads(response.data)["errors"]
        text = "; ".join(str(e.get("message") or e.get("code")) for e in errors)
    except Exception:
        return ""
    return f": {one_line(text)}"


def _token(data: bytes, realm: str) -> str:
    try:
        answer: Any = json.loads(data)
        token = answer.get("token") or answer["access_token"]
    except (ValueError, KeyError, AttributeError, RecursionError):
        raise RegistryError(f"the response of {realm} contains no token") from None
    if not isinstance(token, str) or not _VALID_TOKEN.fullmatch(token):
        raise RegistryError(f"the response of {realm} contains a token that is not valid")
    return token
