"""HTTP requests to a registry, with or without TLS, with authorization and retries."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, ReadTimeoutError

from torchx_specs.errors import one_line
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry import transport
from torchx_workspace_docker.registry.authorization import Authorizer, Scopes
from torchx_workspace_docker.registry.errors import RefusalError, RegistryError, unreachable
from torchx_workspace_docker.registry.transport import (
    Body,
    Response,
    Transport,
    checked_url,
    origin,
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
        self._insecure = insecure or reference.is_loopback
        # Schemes in the order of attempts. Once the registry has answered, only its scheme is left.
        self._schemes = ["https", "http"] if self._insecure else ["https"]
        if reference.is_loopback:
            # Try HTTP first, because a failed TLS handshake takes longer than a failed request.
            self._schemes.reverse()
        self._own = Transport(self._host)
        # Other servers, such as the token service, never get the client certificate, and their
        # certificates are verified.
        self._others = Transport()
        self._sleep = sleep
        self._authorizer = Authorizer(self.registry, self._insecure)

    def request(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        *,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        expected: Iterable[int] = (200, 201, 202, 204),
        stream: bool = False,
    ) -> Response:
        """Send a request, and retry it while the registry is busy or does not answer.

        A registry that accepted the request and then sent nothing is not tried again.

        Args:
            method: The HTTP method.
            url: A path of the registry, or an absolute URL.
            scopes: The authorization that the request needs.
            body: The content to send.
            headers: Headers to send.
            expected: The statuses with which a response is returned; other statuses are errors.
            stream: Whether the caller reads the content of the response.

        Raises:
            RegistryError: The registry refuses the request, or does not answer the last attempt.
        """
        accepted = frozenset(expected)
        options: dict[str, Any] = {"body": body, "headers": headers, "stream": stream}
        for attempt in range(ATTEMPTS):
            try:
                response = self.request_once(method, url, scopes, **options)
            except HTTPError as e:
                if is_final(e, attempt):
                    raise self.unreachable(f"{method} {urlsplit(url).path}", e) from e
                self.pause(attempt)
                continue
            if response.status in accepted:
                return response
            if attempt == ATTEMPTS - 1 or not is_busy(response):
                raise self.refused(method, url, response)
            self.pause(attempt, response)
        raise AssertionError("unreachable")

    def request_once(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        *,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> Response:
        """Send a request without retries; obtain authorization if the registry requires it.

        Raises:
            urllib3.exceptions.HTTPError: The registry does not answer.
            RegistryError: The registry does not accept the credentials, there are none, or the
                response or a redirect is not valid.
        """
        for is_authorized in (False, True):
            target = self.absolute(url)
            all_headers = dict(headers or {})
            # An upload may lead to another server's storage, which must not see the credentials.
            is_own = self._is_own(target)
            authorization = self._authorizer.header(scopes)
            if authorization and is_own:
                all_headers["Authorization"] = authorization
            response = self._send(method, target, url, body, all_headers, stream)
            # The target of a redirect must not ask for the credentials either.
            if response.status != 401 or is_authorized or not self._is_own(response.url):
                return response
            challenge = response.headers.get("WWW-Authenticate", "")
            self._authorizer.authorize(challenge, scopes, response.url, self._send_anywhere)
        return response

    def _is_own(self, url: str) -> bool:
        """Return True if a URL has the registry's scheme, host and port."""
        return origin(url) == origin(self.absolute("/"))

    def _send_anywhere(
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

    def absolute(self, url: str) -> str:
        """Return the URL of a path of the registry; return an absolute URL unchanged."""
        if "://" in url:
            return url
        return f"{self._schemes[0]}://{self._host}{url}"

    def location(self, response: Response, requested: str) -> str:
        """Return the absolute URL in a response's ``Location``, by default the requested URL.

        Raises:
            RegistryError: The URL is not valid, or leads from https to http.
        """
        return checked_url(self.absolute(requested), response.headers.get("Location", requested))

    def pause(self, attempt: int, response: Response | None = None) -> None:
        """Wait before the next attempt: for the time that the registry demands, else with backoff.

        Args:
            attempt: The index of the attempt that failed, from 0.
            response: The registry's response; None if there was none.
        """
        retry_after = response.headers.get("Retry-After", "") if response is not None else ""
        self._sleep(min(_seconds(retry_after, _FIRST_PAUSE * 2**attempt), _LONGEST_PAUSE))

    def unreachable(self, action: str, error: Exception) -> RegistryError:
        """Return the error for a registry that does not answer."""
        return unreachable(self.registry, action, error)

    def refused(self, method: str, url: str, response: Response) -> RegistryError:
        """Return the error for a request that the registry refused."""
        request = f"{method} {urlsplit(url).path}"
        if response.status in (401, 403):
            return RefusalError(
                f"the registry {self.registry} refuses {request} ({response.status}):"
                f" {self._authorizer.explain_refusal()}"
            )
        kind = RegistryError if is_busy(response) else RefusalError
        return kind(
            f"the registry {self.registry} answers {response.status} to"
            f" {request}{_error_text(response)}"
        )

    def _send(
        self,
        method: str,
        target: str,
        url: str,
        body: Body | None,
        headers: Mapping[str, str],
        stream: bool,
    ) -> Response:
        """Send a request; while it is unknown whether the registry uses https or http, try both."""
        switched = False
        while True:
            may_switch = len(self._schemes) > 1 and not switched
            try:
                response = self._send_anywhere(
                    method, target, body=body, headers=headers, stream=stream
                )
            except ReadTimeoutError:
                raise
            except HTTPError as e:
                if _requires_certificate(e):
                    raise RegistryError(
                        f"the registry {self.registry} requires a client certificate: put NAME.cert"
                        f" and NAME.key into {transport.CERTIFICATES}/{self._host}"
                    ) from e
                if self._insecure and self._own.verifies and "CERTIFICATE_VERIFY_FAILED" in str(e):
                    self._own = Transport(self._host, verify=False)
                    _warn_unverified(self.registry)
                elif may_switch and (self._schemes[0] == "http" or _is_without_tls(e)):
                    self._schemes.reverse()
                    switched = True
                else:
                    raise
            else:
                # A server with TLS answers 400 to a request without TLS.
                if not (may_switch and self._schemes[0] == "http" and response.status == 400):
                    if self._is_own(target):
                        del self._schemes[1:]
                    return response
                self._schemes.reverse()
                switched = True
            target = self.absolute(url)


def is_final(error: HTTPError, attempt: int) -> bool:
    """Return True if a request that got no response is not repeated.

    Args:
        error: The error of the request. After a whole time limit without a byte, waiting again is
            of no use.
        attempt: The index of the attempt, from 0.
    """
    return attempt == ATTEMPTS - 1 or isinstance(error, ReadTimeoutError)


def is_busy(response: Response) -> bool:
    """Return True if the request may succeed later: the status is 429, or 500 and above."""
    return response.status == 429 or response.status >= 500


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


def _warn_unverified(registry: str) -> None:
    # urllib3 would repeat its own warning for every request.
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    logger.warning("the certificate of the registry %s is not verified", registry)


def _requires_certificate(error: Exception) -> bool:
    """Return True if the server refused a missing or wrong client certificate."""
    return any(f"_ALERT_{alert}" in str(error) for alert in _CERTIFICATE_ALERTS)


def _is_without_tls(error: Exception) -> bool:
    text = str(error)
    return "SSL" in text or "wrong version" in text.lower() or "EOF" in text
