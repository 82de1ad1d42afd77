"""HTTP requests with a limit for the size of a response, and the errors of a registry."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import urllib3
from urllib3.exceptions import LocationParseError, ReadTimeoutError
from urllib3.util import parse_url

from torchx_specs.errors import BackendError, WorkspaceError, one_line

#: How many characters of a message are kept at its start and at its end.
_HEAD, _TAIL = 1000, 300


class RegistryError(BackendError, WorkspaceError):
    """A registry does not answer, or refuses a request.

    Args:
        message: The message, which may have text of the registry. It becomes one line of limited
            length.
        may_retry: Whether the same request may succeed later.
        retry_after: How long to wait before that, as the registry's header says it; may be empty.
        status: The HTTP status of the registry's response; 0 if there is none.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, may_retry: bool = False, retry_after: str = "", status: int = 0
    ) -> None:
        text = one_line(message)
        if len(text) > _HEAD + _TAIL:
            text = f"{text[:_HEAD]} ... {text[-_TAIL:]}"
        super().__init__(text)
        self.may_retry = may_retry
        self.retry_after = retry_after
        self.status = status


class RefusalError(RegistryError):
    """A registry answers that a request is not allowed or not possible."""


def unreachable(registry: str, action: str, error: Exception) -> RegistryError:
    """Return the error for a registry that does not answer.

    The request may be repeated, unless the registry has accepted it and then sent nothing.

    Args:
        registry: The registry's name.
        action: What the client tried to do, for the message (``GET /v2/...``).
        error: The error of the request.
    """
    reason = one_line(getattr(error, "reason", None) or error)
    return RegistryError(
        f"the registry {registry} does not answer ({action}): {reason}",
        may_retry=not isinstance(error, ReadTimeoutError),
    )


#: Where Docker keeps the certificates of single registries.
CERTIFICATES = "/etc/docker/certs.d"
#: The largest content of a response that is not a stream, in bytes. The specification of registries
#: limits manifests to 4 MB.
MAX_CONTENT = 8 << 20
_BLOCK = 1 << 20
#: How long a server may send nothing, in seconds.
TIMEOUT = 120.0
# Parsers of URLs disagree about these characters, so they could disagree about the host.
_AMBIGUOUS = re.compile(r"[\\\s\x00-\x1f\x7f]")
_DEFAULT_PORTS = {"http": 80, "https": 443}

#: The content of a request: bytes, or a function that each attempt calls to get all blocks.
Body = bytes | Callable[[], Iterable[bytes]]
Origin = tuple[str, str, int]


@dataclass
class Response:
    """A response whose content was read, or can be read as a stream.

    Args:
        status: The HTTP status.
        headers: The headers; names are case-insensitive.
        url: The URL that has answered; after a redirect, the redirect's target.
        data: The content; empty for a stream.
        raw: The response of urllib3.
    """

    status: int
    headers: Mapping[str, str]
    url: str
    data: bytes
    raw: urllib3.BaseHTTPResponse

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield the content of a stream in blocks.

        Args:
            size: The largest valid size of the content, in bytes.

        Raises:
            RegistryError: The content is larger than ``size``, or is not valid HTTP.
            urllib3.exceptions.HTTPError: The connection fails.
        """
        left = size
        try:
            for block in self.raw.stream(_BLOCK, decode_content=False):
                left -= len(block)
                if left < 0:
                    raise RegistryError(f"{self.url} sends more than {size} bytes")
                yield block
            self.raw.release_conn()
        except ValueError as e:  # http.client raises this if the size of a chunk is not a number.
            raise RegistryError(f"the response of {self.url} is not valid HTTP: {e}") from e
        finally:
            self.raw.close()


class Transport:
    """Sends requests to any server.

    Args:
        host: The host (and port) of a registry, whose certificates in Docker's folder are used;
            empty to use none of them.
        verify: Whether to verify certificates.

    Raises:
        RegistryError: A certificate cannot be used.
    """

    def __init__(self, host: str = "", verify: bool = True) -> None:
        context = _tls_context(host, verify)
        options: dict[str, Any] = {} if context is None else {"ssl_context": context}
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=10, read=TIMEOUT), **options
        )

    def request(
        self,
        method: str,
        url: str,
        *,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> Response:
        """Send a request, without retries and redirects.

        Args:
            method: The HTTP method.
            url: An absolute URL.
            body: The content to send.
            headers: Headers to send.
            stream: Whether the caller reads the content of a successful response.

        Raises:
            RegistryError: The content of the response is too large.
            urllib3.exceptions.HTTPError: The server does not answer.
        """
        raw = self._pool.request(
            method,
            url,
            body=body() if callable(body) else body,
            headers=dict(headers or {}),
            preload_content=False,
            redirect=False,
            retries=False,
        )
        response = Response(raw.status, raw.headers, url, b"", raw)
        if not stream or not 200 <= raw.status < 300:
            response.data = b"".join(response.stream(MAX_CONTENT))
        return response


def origin(url: str) -> Origin:
    """Return scheme, host and port of a URL, as urllib3 reads them when it sends a request.

    Raises:
        RegistryError: The URL is not valid, or has a character on which parsers disagree.
    """
    try:
        parts = parse_url(url)
        if _AMBIGUOUS.search(url) or not parts.scheme or not parts.host:
            raise ValueError
        return parts.scheme, parts.host.lower(), parts.port or _DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError, LocationParseError):
        raise RegistryError(
            f"'{url:.200}' is not a valid URL; it must begin with https://"
        ) from None


def checked_url(base: str, location: str) -> str:
    """Return the absolute URL of a header ``Location``.

    Args:
        base: The URL whose response had the header.
        location: The value of the header, which may be a relative URL.

    Raises:
        RegistryError: The URL is not valid, or leads from https to http.
    """
    try:
        target = urljoin(base, location)
    except ValueError:
        raise RegistryError(f"{base} answers with an invalid Location: '{location:.200}'") from None
    if origin(base)[0] == "https" and origin(target)[0] != "https":
        raise RegistryError(
            f"{base} leads to {target}, which has no TLS; the registry must be configured with its"
            " https address"
        )
    return target


def _tls_context(host: str, verify: bool) -> ssl.SSLContext | None:
    """Return a context with the host's certificates in Docker's folder, or None if not needed."""
    certificates = sorted((Path(CERTIFICATES) / host).glob("*.c*rt")) if host else []
    if verify and not certificates:
        return None
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
    return context
