"""Requests to a cluster.

Requests use the kubernetes library's connection (configuration, credentials, TLS, proxies). They do
not use the library's model classes, which take much time and memory for thousands of pods.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

import urllib3
import urllib3.exceptions

from torchx_kit.retry import Backoff, Outage
from torchx_sched_k8s.cluster import kubeconfig
from torchx_sched_k8s.cluster.errors import ApiError, LostConnectionError, NoClusterError, refusal
from torchx_specs.errors import BackendError, RequestError, one_line
from torchx_specs.redaction import masked_text
from torchx_specs.version import __version__

if TYPE_CHECKING:
    from kubernetes.client import ApiClient
    from urllib3 import BaseHTTPResponse

#: How long to repeat a request to a busy or unreachable API server, in seconds. The option
#: ``retry_seconds`` and the environment variable :data:`PATIENCE_VARIABLE` set another limit.
PATIENCE = 120.0
PATIENCE_VARIABLE = "TORCHX_KUBERNETES_RETRY_SECONDS"
#: Maximum number of objects in one page of a list.
PAGE_SIZE = 500

_READ_TIMEOUT = 60.0
_CONNECT_TIMEOUT = 10.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 3.0
_LONGEST_RETRY_AFTER = 6.0
#: The longest description of a lost connection in an error message, in characters.
_LONGEST_CAUSE = 300
#: The shortest pause that is logged as a warning, once for each request, in seconds.
_WARNING_PAUSE = 1.0
#: HTTP status codes of errors that are often temporary.
BUSY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
#: Texts in messages of permanent errors that nevertheless have one of BUSY_STATUSES.
_LASTING_ERRORS = ("too large", "larger than max", "failed calling webhook")

_CONNECTION = re.compile(r"^<?[\w.]*Connection\S*\([^)]*\)(?: at \w+>)?: ")

_JsonObject = dict[str, Any]


class Cluster:
    """Client of one cluster's API.

    Args:
        client: A client of the kubernetes library; by default it is made from the environment.
        context: Context of the kubeconfig; by default the current one.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns a time in seconds.
    """

    def __init__(
        self,
        client: ApiClient | None = None,
        context: str | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client: Any = client
        self._owns_client = client is None
        self._context = context
        self._lock = threading.Lock()
        #: How long to repeat requests, in seconds; None for the default.
        self.patience: float | None = None
        self.sleep = sleep
        self.clock = clock
        #: Shared by all followers of logs, so that all of them end after a long outage of the API
        #: server, or none does.
        self.outage = Outage(clock)
        #: When each node was last probed for an answer (:attr:`clock`).
        self.probes: dict[str | None, float] = {}

    @property
    def client(self) -> Any:
        """The kubernetes library's client, made at the first access and after a renewal.

        Raises:
            NoClusterError: The configuration of the cluster is missing or cannot be used.
            RequestError: The kubeconfig does not have the context.
        """
        with self._lock:  # so that several threads run the credential program only once
            if self._client is None:
                self._client = kubeconfig.connect(self._context)
            return self._client

    @property
    def retry_seconds(self) -> float:
        """How long to repeat a request while the API server is busy or unreachable, in seconds.

        Raises:
            RequestError: The variable of the environment is not a number of seconds.
        """
        if self.patience is not None:
            return self.patience
        if text := os.environ.get(PATIENCE_VARIABLE):
            try:
                return max(0.0, float(text))
            except ValueError:
                raise RequestError(
                    f"{PATIENCE_VARIABLE}={text!r} is not a number of seconds, such as 120"
                ) from None
        return PATIENCE

    @property
    def address(self) -> str:
        """URL of the API server."""
        return masked_text(str(self.client.configuration.host))

    def close(self) -> None:
        """Close the connections, unless the constructor got a client."""
        self._close(self._client)

    def _close(self, client: Any) -> None:
        """Close a client, unless another thread has replaced it since."""
        with self._lock:
            if client is not None and client is self._client and self._owns_client:
                self._client = None
                client.rest_client.pool_manager.clear()

    # Methods for objects of the API.

    def get(
        self, path: str, action: str, query: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return an object, or a list of objects without paging.

        Args:
            path: API path of the object or list.
            action: The action in error messages, as in "cannot <action>".
            query: Query parameters.

        Raises:
            ApiError: The cluster refuses the request.
            NoClusterError: No cluster is configured, or the cluster gives no valid answer.
        """
        return self.request("GET", path, action, query)

    def get_or_none(self, path: str, action: str) -> dict[str, Any] | None:
        """Return an object, or None if the object or its API does not exist."""
        try:
            return self.get(path, action)
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def list_items(
        self,
        path: str,
        action: str,
        query: Mapping[str, object] | None = None,
        object_hook: Callable[[_JsonObject], _JsonObject] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list, page by page.

        If the list expires between two pages, it is requested again from the first page; no object
        is yielded twice.

        Args:
            path: API path of the list.
            action: The action in error messages, as in "cannot <action>".
            query: Query parameters.
            object_hook: Called for each JSON object while a page is parsed; returns the object to
                use instead, for example a smaller one.

        Raises:
            ApiError: The cluster refuses the request.
            NoClusterError: No cluster is configured, or the cluster gives no valid answer.
        """
        seen: set[str] = set()
        token = ""
        while True:
            page_query = {**(query or {}), "limit": PAGE_SIZE}
            if token:
                page_query["continue"] = token
            try:
                page = self.request("GET", path, action, page_query, object_hook=object_hook)
            except ApiError as e:
                if e.status != 410 or not token:
                    raise
                token = ""
                continue
            for item in page.get("items") or ():
                key = str(item["metadata"].get("uid") or item["metadata"]["name"])
                if key not in seen:
                    seen.add(key)
                    yield item
            token = str((page.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    def create(
        self, path: str, resource: Mapping[str, Any], action: str, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object, or check whether the cluster would create it; return the object.

        Args:
            path: API path of all objects of this kind in the namespace.
            resource: The object.
            action: The action in error messages, as in "cannot <action>".
            dry_run: Whether the cluster only checks the object.
        """
        query: dict[str, object] = {"fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self.request("POST", path, action, query, resource)

    def patch(self, path: str, changes: Mapping[str, Any], action: str) -> dict[str, Any]:
        """Merge changes into an object and return it.

        Args:
            path: API path of the object.
            changes: The changes, as a JSON merge patch.
            action: The action in error messages, as in "cannot <action>".
        """
        return self.request("PATCH", path, action, body=changes)

    def delete(self, path: str, action: str) -> None:
        """Delete an object and its dependents. A missing object is not an error.

        Args:
            path: API path of the object.
            action: The action in error messages, as in "cannot <action>".
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        try:
            self.request("DELETE", path, action, body=options)
        except ApiError as e:
            if e.status != 404:
                raise

    def version(self) -> tuple[int, int]:
        """Return the version of the API server, such as ``(1, 32)``."""
        response = self.get("/version", "read the cluster's version")
        # some vendors write the minor version as "32+"
        major, minor = (
            re.sub(r"\D.*", "", str(response.get(part, ""))) for part in ("major", "minor")
        )
        return int(major or 1), int(minor or 0)

    # Methods for single requests.

    def request(
        self,
        method: str,
        path: str,
        action: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        object_hook: Callable[[_JsonObject], _JsonObject] | None = None,
    ) -> dict[str, Any]:
        """Return the parsed response; repeat the request while the cluster is busy or unreachable.

        Requests are repeated for :attr:`retry_seconds`. If an object exists after the response to
        its creation was lost, the lost request created it, because names are unique.

        Args:
            method: HTTP method.
            path: Path in the API, such as ``/version``.
            action: The action in error messages, as in "cannot <action>".
            query: Query parameters.
            body: Request body, sent as JSON; None for no body. That of a PATCH is a merge patch.
            object_hook: Called for each JSON object while the response is parsed; returns the
                object to use instead.

        Raises:
            ApiError: The cluster refuses the request.
            NoClusterError: No cluster is configured, or the cluster gives no valid answer.
            RequestError: The context or :data:`PATIENCE_VARIABLE` has an invalid value.
        """
        data = None if body is None else json.dumps(body).encode("utf-8")
        error: BackendError
        warned = may_have_created = False

        def sleep(seconds: float) -> None:
            nonlocal warned
            seconds = max(seconds, getattr(error, "retry_after", 0.0))
            if seconds >= _WARNING_PAUSE and not warned:
                warned = True
                logging.getLogger(__name__).warning("%s; retrying", error)
            self.sleep(seconds)

        backoff = Backoff(
            self.retry_seconds,
            first_pause=_FIRST_PAUSE,
            longest_pause=_LONGEST_PAUSE,
            sleep=sleep,
            clock=self.clock,
        )
        while True:
            try:
                with self.open(method, path, action, query, data) as response:
                    return self._parse(response.data, action, object_hook)
            except ApiError as e:
                if e.status == 409 and may_have_created and body is not None:
                    name = quote(str(body["metadata"]["name"]), safe="")
                    return self.get(f"{path}/{name}", action)
                # 409 means that another program changed the object at the same time; our patches
                # are valid for any version of the object
                busy = e.status in BUSY_STATUSES or (e.status == 409 and method == "PATCH")
                if not busy or any(text in e.message for text in _LASTING_ERRORS):
                    raise
                may_have_created |= method == "POST" and e.status != 429
                error = e
            except LostConnectionError as e:
                if not _may_recover(e.__cause__):
                    raise
                may_have_created |= method == "POST" and not _never_sent(e.__cause__)
                error = e
            backoff.pause_after(error)

    def _parse(
        self,
        data: bytes,
        action: str,
        object_hook: Callable[[_JsonObject], _JsonObject] | None,
    ) -> dict[str, Any]:
        try:
            parsed = json.loads(data, object_hook=object_hook)
        except ValueError as e:
            if data.lstrip().startswith(b"{"):
                raise self.lost_connection(action, OSError("the response is incomplete")) from e
            raise NoClusterError(
                f"cannot {action}: the response of {self.address} is not JSON"
            ) from e
        if not _is_api_object(parsed):
            raise NoClusterError(
                f"cannot {action}: the response of {self.address} is not an object of the"
                " Kubernetes API; check the address of the cluster in the kubeconfig"
            )
        return cast("dict[str, Any]", parsed)

    @contextlib.contextmanager
    def open(
        self,
        method: str,
        path: str,
        action: str,
        query: Mapping[str, object] | None = None,
        data: bytes | None = None,
        timeout: float | None = _READ_TIMEOUT,
    ) -> Iterator[BaseHTTPResponse]:
        """Send one request; in the ``with`` statement, the body of the response is not read yet.

        The request is repeated once with renewed credentials if the cluster refuses the present
        ones, and not for any other reason.

        Args:
            method: HTTP method.
            path: Path in the API, such as ``/version``.
            action: The action in error messages, as in "cannot <action>".
            query: Query parameters.
            data: Request body; None for no body.
            timeout: How long to wait for the next data, in seconds; None for no limit.

        Raises:
            ApiError: The cluster refuses the request.
            NoClusterError: No cluster is configured, the cluster does not answer, or the connection
                is lost while the body is read.
        """
        client = self.client
        response = self._send(client, method, path, action, query, data, timeout)
        if response.status == 401 and self._owns_client:
            response.release_conn()
            self._close(client)
            response = self._send(self.client, method, path, action, query, data, timeout)
        try:
            if response.status >= 300:
                raise self._refusal(action, response)
            yield response
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as e:
            raise self.lost_connection(action, e) from e
        finally:
            # the end of the body has released the connection; one with unread data is not reused
            response.close()

    def _send(
        self,
        client: Any,
        method: str,
        path: str,
        action: str,
        query: Mapping[str, object] | None,
        data: bytes | None,
        timeout: float | None,
    ) -> BaseHTTPResponse:
        url = str(client.configuration.host).rstrip("/") + path
        if query:
            url += "?" + urlencode({key: str(value) for key, value in query.items()})
        headers = {**getattr(client, "default_headers", {}), "Accept": "application/json, */*"}
        headers["User-Agent"] = f"torchx/{__version__}"
        if data is not None:
            merge = "application/merge-patch+json"
            headers["Content-Type"] = merge if method == "PATCH" else "application/json"
        try:
            for auth in client.configuration.auth_settings().values():
                if auth.get("in") == "header" and auth.get("value"):
                    headers[auth["key"]] = auth["value"]
            found: BaseHTTPResponse = client.rest_client.pool_manager.request(
                method,
                url,
                body=data,
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT, read=timeout),
            )
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise self.lost_connection(action, e) from e
        return found

    def lost_connection(self, action: str, error: BaseException) -> LostConnectionError:
        """Convert an error of a connection to a LostConnectionError."""
        cause = _CONNECTION.sub("", one_line(getattr(error, "reason", None) or error))
        if len(cause) > _LONGEST_CAUSE:  # the error quotes the data of a server without HTTP
            cause = f"{cause[:_LONGEST_CAUSE]}..."
        return LostConnectionError(
            f"cannot {action}: no answer from the cluster at {self.address} ({cause})"
        )

    def _refusal(self, action: str, response: BaseHTTPResponse) -> ApiError:
        try:
            body = response.data
        except (urllib3.exceptions.HTTPError, OSError):
            body = b""
        credentials = self.credentials() if response.status == 401 else ""
        error = refusal(action, response.status, body, credentials)
        try:
            retry_after = float(response.headers.get("Retry-After") or 0)
        except ValueError:
            retry_after = 0.0
        error.retry_after = min(retry_after, _LONGEST_RETRY_AFTER)
        return error

    def credentials(self) -> str:
        """Return a description of the credentials, for error messages."""
        if not self._owns_client:
            return "the client that was given"
        return kubeconfig.credentials_name(self._context)


def _is_api_object(parsed: object) -> bool:
    """Return whether parsed JSON has the form of an API object, or of a list of API objects."""
    if not isinstance(parsed, dict):
        return False
    items = parsed.get("items") or []
    return isinstance(items, list) and all(
        isinstance(one, dict) and isinstance(one.get("metadata") or {}, dict)
        for one in [parsed, *items]
    )


def _may_recover(error: BaseException | None) -> bool:
    """Return whether a retry may succeed after this error of a connection."""
    if isinstance(error, (urllib3.exceptions.SSLError, ssl.SSLError)):
        return False
    return "Name or service not known" not in str(error) and "resolve" not in str(error)


def _never_sent(error: BaseException | None) -> bool:
    return isinstance(
        error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    )


def chunks(response: BaseHTTPResponse, size: int = 1 << 16) -> Iterator[bytes]:
    """Yield the body of a response as it arrives.

    Args:
        response: The response, in the ``with`` statement of :meth:`Cluster.open`.
        size: The largest piece, in bytes. If the server sends a chunked body, it has no effect: the
            server's chunks are yielded.
    """
    if response.chunked or not hasattr(response, "read1"):
        yield from response.stream(size)
    else:
        while chunk := response.read1(size):
            yield chunk
