"""HTTP requests to a registry, with or without TLS, with authorization and retries."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, MaxRetryError, ProtocolError, SSLError

from torchx_specs.errors import one_line
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.authorization import Authorizer
from torchx_workspace_docker.registry.errors import RegistryError, unreachable

#: The number of attempts after which a request has failed.
ATTEMPTS = 5
#: The pause after the first failure, in seconds; it doubles with each further failure.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_TIMEOUT = urllib3.Timeout(connect=10, read=120)
# urllib3 follows redirects, because blobs are often in another storage, but makes no retries: these
# would delay the switch between https and http, and cannot resume an upload.
_REDIRECTS = urllib3.Retry(total=None, connect=False, read=False, status=False, other=0, redirect=5)
#: Where Docker keeps the certificates of single registries.
_CERTIFICATES = "/etc/docker/certs.d"
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
            self._schemes.reverse()  # A failed TLS handshake takes longer than a failed request.
        self._pool = _pool(self._host)
        self._sleep = sleep
        self._authorizer = Authorizer(self.registry, self._insecure)

    def request(
        self,
        method: str,
        url: str,
        repository: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        expected: Iterable[int] = (200, 201, 202, 204),
        stream: bool = False,
        source: str = "",
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, and retry it while the registry is busy or does not answer.

        Args:
            method: The HTTP method.
            url: A path of the registry, or an absolute URL.
            repository: The repository for which the request needs authorization.
            body: The content to send.
            headers: Headers to send.
            expected: The statuses with which a response is returned; other statuses are errors.
            stream: Whether the caller reads the content of the response.
            source: A second repository for which the request needs authorization; empty for none.

        Raises:
            RegistryError: The registry refuses the request, or does not answer the last attempt.
        """
        accepted = frozenset(expected)
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            try:
                response = self.request_once(
                    method,
                    url,
                    repository,
                    body=body,
                    headers=headers,
                    stream=stream,
                    source=source,
                )
            except HTTPError as e:
                if is_last:
                    raise self.unreachable(f"{method} {urlsplit(url).path}", e) from e
                self.pause(attempt)
                continue
            if response.status in accepted:
                return response
            if is_last or not is_busy(response):
                raise self.refused(method, url, response)
            self.pause(attempt, response)
        raise AssertionError("unreachable")

    def request_once(
        self,
        method: str,
        url: str,
        repository: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        source: str = "",
    ) -> urllib3.BaseHTTPResponse:
        """Send a request without retries; obtain authorization if the registry requires it.

        Raises:
            urllib3.exceptions.HTTPError: The registry does not answer.
            RegistryError: The registry does not accept the credentials, or there are none.
        """
        for is_authorized in (False, True):
            target = self.absolute(url)
            all_headers = dict(headers or {})
            # An upload may lead to another host's storage, which must not see the credentials.
            is_own = urlsplit(target).netloc == self._host
            authorization = self._authorizer.header(repository, source)
            if authorization and is_own:
                all_headers["Authorization"] = authorization
            response = self._send(method, target, url, body, all_headers, stream)
            if response.status != 401 or is_authorized or not is_own:
                return response
            response.drain_conn()
            challenge = response.headers.get("WWW-Authenticate", "")
            self._authorizer.authorize(challenge, repository, source, self._pool)
        return response

    def absolute(self, url: str) -> str:
        """Return the URL of a path of the registry; return an absolute URL unchanged."""
        if "://" in url:
            return url
        return f"{self._schemes[0]}://{self._host}{url}"

    def location(self, response: urllib3.BaseHTTPResponse, requested: str) -> str:
        """Return the absolute URL in a response's ``Location``, by default the requested URL."""
        return urljoin(self.absolute(requested), response.headers.get("Location", requested))

    def pause(self, attempt: int, response: urllib3.BaseHTTPResponse | None = None) -> None:
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

    def refused(self, method: str, url: str, response: urllib3.BaseHTTPResponse) -> RegistryError:
        """Return the error for a request that the registry refused."""
        request = f"{method} {urlsplit(url).path}"
        if response.status in (401, 403):
            return RegistryError(
                f"the registry {self.registry} refuses {request} ({response.status}):"
                f" {self._authorizer.explain_refusal()}"
            )
        return RegistryError(
            f"the registry {self.registry} answers {response.status} to"
            f" {request}{_error_text(response)}"
        )

    def _send(
        self,
        method: str,
        target: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        """Send one request; while both https and http are possible, find the right one."""
        switched = False
        while True:
            may_switch = len(self._schemes) > 1 and not switched
            try:
                response = self._pool.request(
                    method,
                    target,
                    body=body,
                    headers=dict(headers),
                    preload_content=not stream,
                    redirect=method in ("GET", "HEAD"),
                )
            except (SSLError, MaxRetryError, ProtocolError) as e:
                if _requires_certificate(e):
                    raise RegistryError(
                        f"the registry {self.registry} requires a client certificate: put NAME.cert"
                        f" and NAME.key into {_CERTIFICATES}/{self._host}"
                    ) from e
                if self._insecure and "CERTIFICATE_VERIFY_FAILED" in str(e):
                    self._pool = _pool(self._host, verify=False)
                    _warn_unverified(self.registry)
                elif may_switch and (self._schemes[0] == "http" or _is_without_tls(e)):
                    self._schemes.reverse()
                    switched = True
                else:
                    raise
            else:
                # A server with TLS answers 400 to a request without TLS.
                if not (may_switch and self._schemes[0] == "http" and response.status == 400):
                    if target.startswith(f"{self._schemes[0]}://{self._host}/"):
                        del self._schemes[1:]
                    return response
                response.drain_conn()
                self._schemes.reverse()
                switched = True
            target = self.absolute(url)


def is_busy(response: urllib3.BaseHTTPResponse) -> bool:
    """Return True if the request may succeed later: the status is 429, or 500 and above."""
    return response.status == 429 or response.status >= 500


def _seconds(retry_after: str, default: float) -> float:
    """Return the value of ``Retry-After`` (a number or a date) in seconds."""
    try:
        return float(_REDIRECTS.parse_retry_after(retry_after))
    except InvalidHeader:
        return default


def _error_text(response: urllib3.BaseHTTPResponse) -> str:
    try:
        errors = json.loads(response.data)["errors"]
        text = "; ".join(str(e.get("message") or e.get("code")) for e in errors)
    except Exception:
        return ""
    return f": {one_line(text)}"


def _pool(host: str, verify: bool = True) -> urllib3.PoolManager:
    """Return a connection pool that uses the certificates in Docker's folder for the host.

    Raises:
        RegistryError: A certificate cannot be used.
    """
    certificates = sorted((Path(_CERTIFICATES) / host).glob("*.c*rt"))
    if verify and not certificates:
        return urllib3.PoolManager(timeout=_TIMEOUT, retries=_REDIRECTS)
    context = ssl.create_default_context()
    for path in certificates:
        try:
            if path.suffix == ".crt":
                context.load_verify_locations(path)
            else:  # A client certificate: NAME.cert, with its key in NAME.key.
                key = path.with_suffix(".key")
                if not key.exists():
                    raise FileNotFoundError(f"its key {key} is missing")
                context.load_cert_chain(path, key)
        except OSError as e:  # An ssl.SSLError is an OSError.
            raise RegistryError(f"the certificate {path} cannot be used: {e}") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return urllib3.PoolManager(timeout=_TIMEOUT, retries=_REDIRECTS, ssl_context=context)


def _warn_unverified(registry: str) -> None:
    # This one warning replaces those of urllib3, which repeats them for every request.
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    logger.warning("the certificate of the registry %s is not verified", registry)


def _requires_certificate(error: Exception) -> bool:
    """Return True if the server refused a missing or wrong client certificate."""
    return any(f"_ALERT_{alert}" in str(error) for alert in _CERTIFICATE_ALERTS)


def _is_without_tls(error: Exception) -> bool:
    text = str(error)
    return "SSL" in text or "wrong version" in text.lower() or "EOF" in text
