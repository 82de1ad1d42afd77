"""A registry, by the OCI distribution API."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError, SSLError

from torchx_specs.errors import BackendError, WorkspaceError
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.credentials import Credentials, credentials_for

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST_TYPES = (OCI_MANIFEST, DOCKER_MANIFEST)

#: How often something is tried before it counts as failed.
ATTEMPTS = 5
#: How often a refusal is doubted that others, who push the same, may have caused.
_LOOKS = 3
_CHUNK = 8 << 20
_PIECE = 1 << 20
#: After a first failure, in seconds; after another one twice as long.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_TIMEOUT = urllib3.Timeout(connect=10, read=120)
_CERTIFICATES = "/etc/docker/certs.d"
#: Only redirections are followed there: blobs are often at somebody else's.
_RETRIES = urllib3.Retry(total=None, connect=False, read=False, status=False, other=0, redirect=5)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class RegistryError(BackendError, WorkspaceError):
    """The registry does not answer, or refuses."""

    exit_code = 3


class Registry:
    """One registry.

    Args:
        reference: an image in it
        insecure: whether it may be spoken to without TLS
        sleep: waits between two attempts, given seconds
    """

    def __init__(
        self,
        reference: Reference,
        insecure: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = reference.registry
        self._host = reference.host
        self._insecure = insecure or reference.is_loopback
        # the one that is tried first; only one is left once the registry has answered
        self._schemes = ["https", "http"] if self._insecure else ["https"]
        if reference.is_loopback:
            self._schemes.reverse()  # to look for certificates takes longer than to ask
        self._pool = _pool(self._host)
        self._sleep = sleep
        self._authorization: dict[str, str] = {}
        self._credentials: Credentials | None = None
        self._asked_credentials = False

    # -- reading

    def manifest(self, repository: str, version: str) -> tuple[bytes, str, str] | None:
        """Returns content, media type and digest of a manifest, None if there is none."""
        response = self._call(
            "GET",
            f"/v2/{repository}/manifests/{version}",
            repository,
            headers={"Accept": ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))},
            ok=(200, 404),
        )
        if response.status == 404:
            return None
        data = response.data
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if version.startswith("sha256:") and version != digest:
            raise RegistryError(f"{self.name} answers another manifest for {repository}@{version}")
        kind = json.loads(data).get("mediaType") or response.headers.get("Content-Type", "")
        return data, str(kind).partition(";")[0], digest

    def has_blob(self, repository: str, digest: str) -> bool:
        """Returns True if a repository has a blob."""
        url = f"/v2/{repository}/blobs/{digest}"
        return self._call("HEAD", url, repository, ok=(200, 404)).status == 200

    def json_blob(self, repository: str, digest: str) -> dict[str, Any]:
        """Returns a blob that is JSON."""
        data = self._call("GET", f"/v2/{repository}/blobs/{digest}", repository, ok=(200,)).data
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise RegistryError(f"{self.name} answers another blob for {repository}@{digest}")
        found: dict[str, Any] = json.loads(data)
        return found

    def download(self, repository: str, digest: str, out: IO[bytes]) -> None:
        """Writes a blob to a file."""
        for attempt in range(ATTEMPTS):
            out.seek(0)
            out.truncate()
            known = hashlib.sha256()
            response = self._call(
                "GET", f"/v2/{repository}/blobs/{digest}", repository, ok=(200,), stream=True
            )
            try:
                for piece in response.stream(_PIECE, decode_content=False):
                    known.update(piece)
                    out.write(piece)
            except HTTPError as e:
                if attempt == ATTEMPTS - 1:
                    raise self._lost(f"{repository}@{digest}", e) from e
                self._pause(attempt)
                continue
            finally:
                response.close()
            if f"sha256:{known.hexdigest()}" == digest:
                return
        raise RegistryError(f"{self.name} answers another blob for {repository}@{digest}")

    # -- writing

    def mount(self, repository: str, digest: str, source: str) -> bool:
        """Takes a blob over from another repository of the registry; returns whether it could."""
        query = urlencode({"mount": digest, "from": source})
        response = self._call(
            "POST",
            f"/v2/{repository}/blobs/uploads/?{query}",
            repository,
            ok=(201, 202),
            also=source,
        )
        if response.status == 202:  # it has begun an upload instead
            location = self._location(response, f"/v2/{repository}/blobs/uploads/")
            self._call("DELETE", location, repository, ok=range(200, 500))
        return response.status == 201

    def upload(
        self,
        repository: str,
        digest: str,
        size: int,
        content: IO[bytes],
        progress: Callable[[int], None] = lambda sent: None,
    ) -> None:
        """Uploads a blob in chunks; after a broken connection it goes on from where it was.

        Args:
            repository: where to
            digest: of the content
            size: of the content, in bytes
            content: from its beginning
            progress: is told how many bytes have arrived since it was last called
        """
        failures = 0
        location, sent = self._begin(repository), 0
        while sent < size:
            content.seek(sent)
            chunk = content.read(min(_CHUNK, size - sent))
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{sent}-{sent + len(chunk) - 1}",
                "Content-Length": str(len(chunk)),
            }
            try:
                response = self._once("PATCH", location, repository, body=chunk, headers=headers)
                status = response.status
            except HTTPError as e:
                failures += 1
                if failures >= ATTEMPTS:
                    raise self._lost(f"the upload of {repository}@{digest}", e) from e
                self._pause(failures - 1)
                location, arrived = self._where(repository, location)
                progress(max(arrived - sent, 0))
                sent = arrived
                continue
            if status in (201, 202, 204):
                location = self._location(response, location)
                sent += len(chunk)
                progress(len(chunk))
            elif status in (404, 416) or status == 429 or status >= 500:
                failures += 1
                if failures >= ATTEMPTS:
                    raise self._refused("PATCH", location, response)
                self._pause(failures - 1, response)
                location, sent = self._where(repository, location)
            else:
                raise self._refused("PATCH", location, response)
        separator = "&" if urlsplit(location).query else "?"
        finish = f"{location}{separator}{urlencode({'digest': digest})}"
        response = self._call("PUT", finish, repository, ok=(201, 204, 400, 404))
        if response.status in (400, 404):
            # an answer that was lost on its way, or somebody else who uploads the same just now,
            # unless the blob is not there after all
            for attempt in range(_LOOKS):
                if self.has_blob(repository, digest):
                    return
                self._pause(attempt)
            raise self._refused("PUT", finish, response)

    def put_manifest(self, repository: str, tag: str, data: bytes, media_type: str) -> str:
        """Tags an image whose blobs are all there; returns its digest, which was verified."""
        url = f"/v2/{repository}/manifests/{tag}"
        headers = {"Content-Type": media_type}
        for attempt in range(_LOOKS):
            response = self._call(
                "PUT", url, repository, body=data, headers=headers, ok=(200, 201, 202, 204, 400)
            )
            if response.status != 400:
                break
            # registries that keep files may read what somebody else, who pushes the same, has
            # written only half
            self._pause(attempt)
        else:
            raise self._refused("PUT", url, response)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        found = self.manifest(repository, digest)
        if found is None or found[0] != data:
            raise RegistryError(f"{self.name} has not kept {repository}:{tag} as it was pushed")
        return digest

    def _begin(self, repository: str) -> str:
        url = f"/v2/{repository}/blobs/uploads/"
        return self._location(self._call("POST", url, repository, ok=(202,)), url)

    def _where(self, repository: str, location: str) -> tuple[str, int]:
        """Returns how far an upload has come; a new one if the registry has forgotten it."""
        response = self._call("GET", location, repository, ok=range(200, 500))
        if response.status not in (200, 204):
            return self._begin(repository), 0
        found = re.match(r"\D*\d+-(\d+)", response.headers.get("Range", ""))
        last = int(found[1]) if found else 0
        return self._location(response, location), last + 1 if last else 0

    def _location(self, response: urllib3.BaseHTTPResponse, before: str) -> str:
        return urljoin(self._absolute(before), response.headers.get("Location", before))

    # -- requests

    def _call(
        self,
        method: str,
        url: str,
        repository: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        ok: Iterable[int] = (200, 201, 202, 204),
        stream: bool = False,
        also: str = "",
    ) -> urllib3.BaseHTTPResponse:
        """Makes a request, again if the registry is busy or does not answer.

        Raises:
            RegistryError: it refuses, or still does not answer
        """
        accepted = frozenset(ok)
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                response = self._once(
                    method, url, repository, body=body, headers=headers, stream=stream, also=also
                )
            except HTTPError as e:
                if last:
                    raise self._lost(f"{method} {urlsplit(url).path}", e) from e
                self._pause(attempt)
                continue
            if response.status in accepted:
                return response
            if last or (response.status != 429 and response.status < 500):
                raise self._refused(method, url, response)
            self._pause(attempt, response)
        raise AssertionError("unreachable")

    def _once(
        self,
        method: str,
        url: str,
        repository: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        also: str = "",
    ) -> urllib3.BaseHTTPResponse:
        scope = f"repository:{repository}:pull,push"
        for signed in (False, True):
            target = self._absolute(url)
            given = dict(headers or {})
            own = urlsplit(target).netloc == self._host
            known = self._authorization.get(scope + also) or self._authorization.get("")
            if known and own:  # an upload may lead to somebody else's storage
                given["Authorization"] = known
            response = self._send(method, target, url, body, given, stream)
            if response.status != 401 or signed or not own:
                return response
            response.drain_conn()
            self._sign(response.headers.get("WWW-Authenticate", ""), repository, scope, also)
        return response

    def _send(
        self,
        method: str,
        target: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        """Sends one request, by the other scheme if it is to be found out which one it is."""
        switched = False
        while True:
            more = len(self._schemes) > 1 and not switched
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
                if _wants_certificate(e):
                    raise RegistryError(
                        f"the registry {self.name} wants a certificate that it knows: put one into"
                        f" {_CERTIFICATES}/{self._host}, NAME.cert with its NAME.key"
                    ) from e
                if self._insecure and "CERTIFICATE_VERIFY_FAILED" in str(e):
                    self._pool = _pool(self._host, verify=False)
                    _tell_unverified(self.name)
                elif more and (self._schemes[0] == "http" or _no_tls(e)):
                    self._schemes.reverse()
                    switched = True
                else:
                    raise
            else:
                # what a server with TLS says to one who comes without
                if not (more and self._schemes[0] == "http" and response.status == 400):
                    if target.startswith(f"{self._schemes[0]}://{self._host}/"):
                        del self._schemes[1:]
                    return response
                response.drain_conn()
                self._schemes.reverse()
                switched = True
            target = self._absolute(url)

    def _absolute(self, url: str) -> str:
        if "://" in url:
            return url
        return f"{self._schemes[0]}://{self._host}{url}"

    def _sign(self, challenge: str, repository: str, scope: str, also: str) -> None:
        """Answers a registry's question who is asking."""
        if not self._asked_credentials:
            self._credentials = credentials_for(self.name)
            self._asked_credentials = True
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            if self._credentials is None:
                raise RegistryError(f"{self.name} wants credentials: docker login {self.name}")
            self._authorization[""] = self._credentials.header
            return
        parameters = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or "realm" not in parameters:
            raise RegistryError(f"{self.name} wants an unknown kind of credentials: {kind}")
        scopes = [scope, *([f"repository:{also}:pull"] if also else [])]
        self._authorization[scope + also] = f"Bearer {self._token(parameters, scopes)}"

    def _token(self, parameters: Mapping[str, str], scopes: list[str]) -> str:
        realm = parameters["realm"]
        if urlsplit(realm).scheme != "https" and not self._insecure:
            raise RegistryError(f"{self.name} wants credentials sent without TLS, to {realm}")
        asked = [("service", parameters.get("service", "")), *(("scope", s) for s in scopes)]
        credentials = self._credentials
        try:
            if credentials is not None and not credentials.user:
                form = {
                    "grant_type": "refresh_token",
                    "client_id": "torchx",
                    "refresh_token": credentials.secret,
                    "service": parameters.get("service", ""),
                    "scope": " ".join(scopes),
                }
                response = self._pool.request("POST", realm, fields=form, encode_multipart=False)
            else:
                headers = {"Authorization": credentials.header} if credentials else {}
                separator = "&" if urlsplit(realm).query else "?"
                url = f"{realm}{separator}{urlencode(asked)}"
                response = self._pool.request("GET", url, headers=headers)
        except HTTPError as e:
            raise self._lost(f"the token from {realm}", e) from e
        if response.status != 200:
            who = f"the credentials of '{credentials.user}'" if credentials else "nobody"
            raise RegistryError(
                f"{self.name} does not accept {who} ({realm} answers {response.status}):"
                f" docker login {self.name}"
            )
        try:
            answer = json.loads(response.data)
            return str(answer.get("token") or answer["access_token"])
        except (ValueError, KeyError):
            raise RegistryError(f"{realm} answers no token") from None

    def _pause(self, attempt: int, response: urllib3.BaseHTTPResponse | None = None) -> None:
        pause = _FIRST_PAUSE * 2**attempt
        asked = response.headers.get("Retry-After", "") if response is not None else ""
        self._sleep(min(_seconds(asked, pause), _LONGEST_PAUSE))

    def _lost(self, what: str, error: Exception) -> RegistryError:
        why = " ".join(str(getattr(error, "reason", None) or error).split())
        return RegistryError(
            f"the registry {self.name} does not answer ({what}, {ATTEMPTS} attempts): {why}"
        )

    def _refused(self, method: str, url: str, response: urllib3.BaseHTTPResponse) -> RegistryError:
        if response.status in (401, 403):
            who = (
                f"the credentials of '{self._credentials.user}' do not allow it"
                if self._credentials
                else "there are no credentials"
            )
            return RegistryError(
                f"{self.name} refuses {method} {urlsplit(url).path} ({response.status}): {who};"
                f" docker login {self.name}"
            )
        return RegistryError(
            f"{self.name} answers {response.status} to {method} {urlsplit(url).path}"
            f"{_said(response)}"
        )


def _seconds(retry_after: str, otherwise: float) -> float:
    """Returns how long a server asks to be left alone: it says so in seconds, or when that ends."""
    if retry_after.isdigit():
        return float(retry_after)
    from email.utils import parsedate_to_datetime

    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return otherwise


def _said(response: urllib3.BaseHTTPResponse) -> str:
    try:
        errors = json.loads(response.data)["errors"]
        text = "; ".join(str(e.get("message") or e.get("code")) for e in errors)
    except Exception:
        return ""
    return f": {' '.join(text.split())}"


def _pool(host: str, verify: bool = True) -> urllib3.PoolManager:
    """Returns connections; certificates of single registries are where Docker has them, too.

    Raises:
        RegistryError: one of those cannot be used
    """
    from pathlib import Path

    found = sorted((Path(_CERTIFICATES) / host).glob("*.c*rt"))
    if verify and not found:
        return urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES)
    import ssl

    context = ssl.create_default_context()
    for path in found:
        try:
            if path.suffix == ".crt":
                context.load_verify_locations(path)
            else:  # who we are: .cert, with its .key beside it
                key = path.with_suffix(".key")
                if not key.exists():
                    raise FileNotFoundError(f"there is no {key}")
                context.load_cert_chain(path, key)
        except OSError as e:  # ssl's errors, too
            raise RegistryError(f"the certificate {path} cannot be used: {e}") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES, ssl_context=context)


def _tell_unverified(name: str) -> None:
    import logging

    # once, in our words, and not with each request
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    logging.getLogger(__name__).warning("the certificate of the registry %s is not verified", name)


def _wants_certificate(error: Exception) -> bool:
    """Returns True if a server refuses who comes without a certificate, or with a wrong one."""
    text = str(error)
    return any(
        f"_ALERT_{alert}" in text
        for alert in (
            "CERTIFICATE_REQUIRED",
            "BAD_CERTIFICATE",
            "UNKNOWN_CA",
            "CERTIFICATE_UNKNOWN",
        )
    )


def _no_tls(error: Exception) -> bool:
    text = str(error)
    return "SSL" in text or "wrong version" in text.lower() or "EOF" in text


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the content of a file."""
    while piece := file.read(_PIECE):
        yield piece
