"""The cluster: reaching it, and its errors in our words.

Requests go through the kubernetes library's client (configuration, credentials, TLS, proxies), but
not through its models: lists of thousands of pods would take too long and too much memory.
"""

from __future__ import annotations

import codecs
import itertools
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from torchx_specs.errors import BackendError, RequestError
from torchx_specs.version import __version__

if TYPE_CHECKING:
    from kubernetes.client import ApiClient
    from urllib3 import BaseHTTPResponse

BATCH = "/apis/batch/v1"
CORE = "/api/v1"
JOBSET = "/apis/jobset.x-k8s.io/v1alpha2"
VOLCANO = "/apis/batch.volcano.sh/v1alpha1"
MCAD = "/apis/workload.codeflare.dev/v1beta1"
KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

T = TypeVar("T")

#: How long a cluster that is busy, or whose API server starts again, is asked again, in seconds.
PATIENCE = 30.0
#: How long one answer may take, in seconds.
TIMEOUT = 60.0
_CONNECT_TIMEOUT = 10.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 3.0
#: A pause after which a user wants to know what is going on.
_TELLING_PAUSE = 1.0
_PAGE = 500
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_NOT_BUSY = ("too large", "larger than max", "failed calling webhook")

_RBAC = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_CONNECTION = re.compile(r"^<?[\w.]*Connection\S*\([^)]*\)(?: at \w+>)?: ")
_ITEMS = re.compile(r'"items"\s*:\s*(\[|null)')
_BETWEEN = re.compile(r"[\s,]*")
_NO_NAMESPACE = re.compile(r'namespaces? "([^"]+)" not found')

#: Parts of pods that nobody here reads, and that take most of the memory.
_BULKY = frozenset(
    {"managedFields", "env", "envFrom", "volumeMounts", "volumes", "tolerations", "affinity"}
    | {"command", "args", "resources", "ports", "livenessProbe", "readinessProbe", "startupProbe"}
    | {"securityContext", "lifecycle", "allocatedResources", "imageID", "containerID"}
    | {"hostIPs", "podIPs", "imagePullSecrets"}
)


class NoClusterError(BackendError):
    """No cluster is known, or it does not answer."""


class LostConnectionError(NoClusterError):
    """No connection could be made, or it was lost; its cause says how."""


class ApiError(BackendError):
    """The cluster refuses.

    Attributes:
        status: of HTTP
        reason: in one word (``NotFound``), empty if the cluster says none
        words: the cluster's message
    """

    def __init__(self, text: str, status: int = 0, reason: str = "", words: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.words = words
        #: Seconds after which the cluster wants to be asked again.
        self.retry_after = 0.0
        #: Identity of the library's client by whose credentials it was asked.
        self.asked_by = 0


class RefusedRequestError(RequestError, ApiError):
    """The cluster finds the request wrong."""

    exit_code = 2

    def __init__(self, text: str, status: int = 0, reason: str = "", words: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.words = words


class Cluster:
    """One cluster.

    Args:
        client: a client of it, made from the environment if None
        context: of the kubeconfig, its current one if None
    """

    def __init__(self, client: ApiClient | None = None, context: str | None = None) -> None:
        self._client: Any = client
        self._own = client is None
        self._context = context
        self._lock = threading.Lock()
        self._version: tuple[int, int] | None = None

    @property
    def client(self) -> Any:
        """The library's client."""
        with self._lock:  # a program for credentials is asked once, whoever waits for them
            if self._client is None:
                from torchx_sched_k8s.cluster.kubeconfig import connect

                self._client = connect(self._context)
            return self._client

    @property
    def address(self) -> str:
        """Where the cluster is."""
        from torchx_specs.redaction import masked_text

        return masked_text(str(self.client.configuration.host))

    def close(self) -> None:
        """Closes the connections."""
        self._close(id(self._client))

    def renew(self, refused: ApiError) -> bool:
        """Reads the credentials anew that were refused, unless another thread has done so already;
        False if they were given to us.
        """
        if not self._own:
            return False
        self._close(refused.asked_by)
        return True

    def _close(self, which: int) -> None:
        with self._lock:
            client = self._client
            if client is not None and id(client) == which and self._own:
                self._client = None
                client.rest_client.pool_manager.clear()

    # -- requests

    def get(
        self,
        path: str,
        what: str,
        query: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Returns an object, or a list of them.

        Args:
            path: of the API
            what: is being done, as in "cannot <what>"
            query: parameters

        Raises:
            ApiError: the cluster refuses
            NoClusterError: it does not answer
        """
        found: dict[str, Any] = self.call("GET", path, what, query)
        return found

    def pods(
        self, path: str, what: str, query: Mapping[str, object], read: Callable[[Any], T]
    ) -> list[T]:
        """Returns what is read from each pod of a list; thousands of pods take little memory.

        Args:
            path: of the API
            what: is being done, as in "cannot <what>"
            query: parameters
            read: given a pod without what is bulky in it

        Raises:
            ApiError: the cluster refuses
            NoClusterError: it does not answer
        """

        def parse(answer: _Answer) -> list[T]:
            try:
                return [read(pod) for pod in _items(answer)]
            except _CutOffError as e:
                raise self.lost(what, e) from e

        found: list[T] = self.call("GET", path, what, query, parse=parse)
        return found

    def find(self, path: str, what: str) -> dict[str, Any] | None:
        """Returns an object, None if there is none, or no such API."""
        try:
            return self.get(path, what)
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def pages(
        self, path: str, what: str, query: Mapping[str, object] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yields the objects of a list, page by page.

        A list whose continuation has expired is read again from its beginning, without those that
        were there already.
        """
        seen: set[str] = set()
        more = ""
        while True:
            asked = {**(query or {}), "limit": _PAGE, **({"continue": more} if more else {})}
            try:
                page = self.get(path, what, asked)
            except ApiError as e:
                if e.status != 410 or not more:
                    raise
                more = ""
                continue
            for item in page.get("items") or ():
                name = str(item["metadata"].get("uid") or item["metadata"]["name"])
                if name not in seen:
                    seen.add(name)
                    yield item
            more = str((page.get("metadata") or {}).get("continue") or "")
            if not more:
                return

    def create(
        self, path: str, resource: Mapping[str, Any], what: str, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Creates an object, or asks whether the cluster would.

        A request whose answer was lost is repeated; the object that the first one made is then
        ours, for names are unique.
        """
        query: dict[str, object] = {"fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        lost: list[BaseException] = []
        try:
            made: dict[str, Any] = self.call("POST", path, what, query, resource, lost=lost)
            return made
        except ApiError as e:
            if e.status != 409 or not lost:
                raise
            name = quote(str(resource["metadata"]["name"]), safe="")
            return self.get(f"{path}/{name}", what)

    def patch(self, path: str, changes: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Merges changes into an object."""
        changed: dict[str, Any] = self.call(
            "PATCH", path, what, body=changes, content_type="application/merge-patch+json"
        )
        return changed

    def delete(self, path: str, what: str) -> None:
        """Deletes an object and what it owns; none is as good."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            self.call("DELETE", path, what, body=options)
        except ApiError as e:
            if e.status != 404:
                raise

    def version(self) -> tuple[int, int]:
        """Returns the version of the cluster's API server, such as ``(1, 32)``."""
        if self._version is None:
            found = self.get("/version", "ask for the cluster's version")
            # clusters of others than Kubernetes' own write "32+"
            major, minor = (re.sub(r"\D.*", "", str(found.get(k, ""))) for k in ("major", "minor"))
            self._version = (int(major or 1), int(minor or 0))
        return self._version

    def call(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        parse: Callable[[_Answer], Any] | None = None,
        lost: list[BaseException] | None = None,
    ) -> Any:
        """Returns the cluster's answer; while it is busy or away it is asked again.

        Args:
            method: of HTTP
            path: of the API
            what: is being done, as in "cannot <what>"
            query: parameters
            body: sent as JSON
            content_type: of the body
            parse: makes something of the answer, all of its JSON if None
            lost: gets the failures after which the request may have been carried out

        Raises:
            ApiError: the cluster refuses
            NoClusterError: it does not answer
        """
        data = None if body is None else json.dumps(body).encode("utf-8")
        until = time.monotonic() + PATIENCE
        pause = _FIRST_PAUSE
        renewed = told = False
        while True:
            wait = pause
            try:
                with self.open(method, path, what, query, data, content_type) as answer:
                    return parse(answer) if parse else json.loads(answer.data)
            except ApiError as e:
                if e.status == 401 and not renewed and self.renew(e):
                    renewed = True
                    continue
                # two at once: a merge names no version, and may be asked for again
                busy = e.status in _BUSY or (e.status == 409 and method == "PATCH")
                if not busy or any(sign in e.words for sign in _NOT_BUSY):
                    raise
                if lost is not None and e.status != 429:
                    lost.append(e)
                wait = max(pause, e.retry_after)
                error: BackendError = e
            except LostConnectionError as e:
                if not _may_come_back(e.__cause__):
                    raise
                if lost is not None and not _never_arrived(e.__cause__):
                    lost.append(e)
                error = e
            except ValueError as e:
                raise NoClusterError(
                    f"cannot {what}: the answer of {self.address} is not JSON"
                ) from e
            if time.monotonic() + wait > until:
                raise error
            if wait >= _TELLING_PAUSE and not told:
                told = True
                logging.getLogger(__name__).warning("%s; asking again", error)
            time.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def open(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, object] | None = None,
        data: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = TIMEOUT,
    ) -> _Answer:
        """Returns an answer to be read; asks once.

        Args:
            method: of HTTP
            path: of the API
            what: is being done, as in "cannot <what>"
            query: parameters
            data: the body
            content_type: of the body
            timeout: between two pieces of the answer, in seconds

        Raises:
            ApiError: the cluster refuses
            NoClusterError: it does not answer
        """
        import urllib3
        import urllib3.exceptions

        client = self.client
        url = str(client.configuration.host).rstrip("/") + path
        if query:
            url += "?" + urlencode({key: str(value) for key, value in query.items()})
        headers = {**getattr(client, "default_headers", {}), "Accept": "application/json, */*"}
        headers["User-Agent"] = f"torchx/{__version__}"
        if data is not None:
            headers["Content-Type"] = content_type
        try:
            for auth in client.configuration.auth_settings().values():
                if auth.get("in") == "header" and auth.get("value"):
                    headers[auth["key"]] = auth["value"]
            response = client.rest_client.pool_manager.request(
                method,
                url,
                body=data,
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT, read=timeout),
            )
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise self.lost(what, e) from e
        if response.status >= 300:
            try:
                error = self._error(what, path, response)
                error.asked_by = id(client)
                raise error
            finally:
                response.release_conn()
        return _Answer(self, what, response)

    def lost(self, what: str, error: BaseException) -> LostConnectionError:
        """Returns our error for a connection that cannot be made, or was lost."""
        return LostConnectionError(
            f"cannot {what}: no answer from the cluster at {self.address}"
            f" ({_CONNECTION.sub('', one_line(getattr(error, 'reason', None) or error))})"
        )

    def _error(self, what: str, path: str, response: BaseHTTPResponse) -> ApiError:
        import urllib3.exceptions

        try:
            raw = response.data
        except (urllib3.exceptions.HTTPError, OSError):
            raw = b""
        who = self._who() if response.status == 401 else ""
        error = translated(what, path, response.status, raw, who)
        try:
            after = float(response.headers.get("Retry-After") or 0)
        except ValueError:
            after = 0.0
        error.retry_after = min(after, _LONGEST_PAUSE * 2)
        return error

    def _who(self) -> str:
        """Returns whose credentials are used."""
        if not self._own:
            return "the client that was given"
        from torchx_sched_k8s.cluster.kubeconfig import who

        return who(self._context)


class _Answer:
    """An answer that is being read; the errors of reading it are ours."""

    def __init__(self, cluster: Cluster, what: str, response: BaseHTTPResponse) -> None:
        self._cluster = cluster
        self._what = what
        self._response = response
        self._whole = False

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_: object) -> None:
        # a connection with something left to read cannot be used again
        if self._whole:
            self._response.release_conn()
        else:
            self._response.close()

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces(1 << 20))

    def pieces(self, size: int = 1 << 16) -> Iterator[bytes]:
        """Yields it as it arrives."""
        import http.client

        import urllib3.exceptions

        try:
            response = self._response
            if response.headers.get("Transfer-Encoding") == "chunked":
                yield from response.read_chunked(decode_content=True)
            elif hasattr(response, "read1"):
                while piece := response.read1(size):
                    yield piece
            else:
                yield from response.stream(size)
            self._whole = True
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as e:
            raise self._cluster.lost(self._what, e) from e


def translated(what: str, path: str, status: int, raw: bytes, who: str = "") -> ApiError:
    """Returns a refusal of the cluster as our error.

    Args:
        what: was being done, as in "cannot <what>"
        path: of the API
        status: of HTTP
        raw: what the cluster says
        who: which credentials were used
    """
    words, reason = one_line(raw.decode("utf-8", "replace")), ""
    try:
        told = json.loads(raw)
        words, reason = one_line(told["message"]), str(told.get("reason") or "")
    except (ValueError, KeyError, TypeError):
        pass
    kind: type[ApiError] = ApiError
    text = f"cannot {what}: {words or f'HTTP status {status}'}"
    if status == 401:
        text = (
            f"cannot {what}: the cluster does not accept the credentials of {who or 'the context'}"
            f" ({words or 'Unauthorized'}); has the token expired? log in again"
        )
    elif status == 403:
        text = f"cannot {what}: {_forbidden(words)}"
    elif status == 404:
        missing = _NO_NAMESPACE.search(words)
        if missing:
            kind = RefusedRequestError
            text = (
                f"cannot {what}: namespace '{missing[1]}' does not exist;"
                f" make it (kubectl create namespace {missing[1]}), or set the option namespace"
            )
    elif status == 413 or "too large" in words or "larger than max" in words:
        kind = RefusedRequestError
        text = (
            f"cannot {what}: it is larger than the cluster takes ({words}); pass large arguments in"
            " a file, a workspace or a volume"
        )
    elif status in (400, 422):
        kind = RefusedRequestError
        text = f"cannot {what}: the cluster finds it wrong: {words}"
    return kind(text, status, reason, words)


def _forbidden(words: str) -> str:
    found = _RBAC.search(words)
    if not found:
        return words  # a quota's, a webhook's or a security policy's own
    group = f" (API group {found['group']})" if found["group"] else ""
    where = f" in namespace {found['namespace']}" if found["namespace"] else " in the cluster"
    return (
        f"RBAC forbids {found['user']} to {found['verb']} {found['resource']}{group}{where};"
        " ask for a role that allows it"
    )


def namespaced(api: str, namespace: str, plural: str, name: str = "", sub: str = "") -> str:
    """Returns the path of a namespace's objects of a kind, or of one of them."""
    path = f"{api}/namespaces/{quote(namespace, safe='')}/{plural}"
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{sub}" if sub else path


def one_line(text: Any) -> str:
    """Returns a message on one line."""
    return " ".join(str(text).split())


def _items(answer: _Answer) -> Iterator[dict[str, Any]]:
    """Yields the items of a list as they arrive, without what is bulky in them.

    Raises:
        _CutOffError: the answer is no list, or not complete
    """
    decoder = json.JSONDecoder(object_hook=_without_bulk)
    utf8 = codecs.getincrementaldecoder("utf-8")()
    text, begun, enough = "", False, 0
    for piece in itertools.chain(answer.pieces(), (None,)):
        text += utf8.decode(piece or b"", piece is None)
        if not begun:
            found = _ITEMS.search(text)
            if found is None:
                continue
            if found[1] == "null":
                return
            begun, text = True, text[found.end() :]
        if len(text) < enough and piece is not None:
            continue
        position = enough = 0
        while True:
            position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]
            if text[position : position + 1] == "]":
                return
            try:
                item, position = decoder.raw_decode(text, position)
            except ValueError:
                break
            yield item
        text = text[position:]
        enough = 2 * len(text)  # a large one is not tried with each piece of it
    raise _CutOffError("the list is not complete")


class _CutOffError(OSError):
    """An answer ends before its end."""


def _without_bulk(data: dict[str, Any]) -> dict[str, Any]:
    for key in _BULKY & data.keys():
        del data[key]
    return data


def _may_come_back(error: BaseException | None) -> bool:
    """Returns True if a connection that failed so may succeed a little later."""
    import ssl

    import urllib3.exceptions

    if isinstance(error, (urllib3.exceptions.SSLError, ssl.SSLError)):
        return False
    return "Name or service not known" not in str(error) and "resolve" not in str(error)


def _never_arrived(error: BaseException | None) -> bool:
    import urllib3.exceptions

    return isinstance(
        error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    )
