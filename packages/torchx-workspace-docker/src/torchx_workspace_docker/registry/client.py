"""Client for the manifests and blobs of a registry, by the OCI distribution API.

The API is specified in https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from urllib3.exceptions import HTTPError

from torchx_workspace_docker.registry import connection
from torchx_workspace_docker.registry.authorization import Scopes
from torchx_workspace_docker.registry.connection import Connection, is_busy
from torchx_workspace_docker.registry.errors import RefusalError, RegistryError
from torchx_workspace_docker.registry.manifests import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    Manifest,
    parse_config,
    sha256,
)
from torchx_workspace_docker.registry.patience import current, operation
from torchx_workspace_docker.registry.transport import Response

#: Maximum number of attempts to push a manifest, or to find an uploaded blob, if the registry
#: refuses the request. A concurrent push of the same content can cause such a refusal.
_CHECKS = 3
#: The size of the chunks in which an interrupted upload is resumed, in bytes.
_UPLOAD_CHUNK = 8 << 20
_BLOCK = 1 << 20
#: The HTTP statuses after which an upload begins again with the first byte.
_LOST = frozenset({400, 404, 416})


class Registry:
    """Client for one registry.

    Args:
        connection: The connection to the registry.
        push_to: The repository to which images are pushed; empty for none. For other repositories,
            only the right to pull is requested, because some registries refuse a token with rights
            that the user lacks.
    """

    def __init__(self, connection: Connection, push_to: str = "") -> None:
        self.name = connection.registry
        self._connection = connection
        self._push_to = push_to
        self._unmountable: set[tuple[str, str]] = set()

    # -- The methods below read manifests and blobs.

    def manifest(self, repository: str, version: str) -> Manifest | None:
        """Return a manifest, or None if the repository does not have it.

        Args:
            repository: The repository.
            version: A tag or a digest.

        Raises:
            RegistryError: The registry does not answer, refuses the request, or sends a manifest
                that is not valid or has another digest.
        """
        response = self._request(
            "GET",
            f"/v2/{repository}/manifests/{version}",
            repository,
            headers={"Accept": ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))},
            expected=(200, 404),
        )
        if response.status == 404:
            return None
        digest = sha256(response.data)
        if version.startswith("sha256:") and version != digest:
            raise self._wrong_content(repository, version)
        return Manifest.parse(
            response.data,
            f"{self.name}/{repository}@{digest}",
            response.headers.get("Content-Type", ""),
        )

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return True if a repository has a blob."""
        url = f"/v2/{repository}/blobs/{digest}"
        return self._request("HEAD", url, repository, expected=(200, 404)).status == 200

    def image_config(self, repository: str, digest: str) -> dict[str, Any]:
        """Return the configuration of an image, which is a blob.

        Raises:
            RegistryError: The registry does not have the blob, or sends content that is not valid
                or has another digest.
        """
        url = f"/v2/{repository}/blobs/{digest}"
        data = self._request("GET", url, repository, expected=(200,)).data
        if sha256(data) != digest:
            raise self._wrong_content(repository, digest)
        return parse_config(data, f"{self.name}/{repository}@{digest}")

    @operation()
    def download(
        self,
        repository: str,
        digest: str,
        size: int,
        out: IO[bytes],
        progress: Callable[[int], None] = lambda received: None,
    ) -> None:
        """Write the content of a blob to a file, and check size and digest.

        Args:
            repository: The repository.
            digest: The digest of the blob.
            size: The size of the blob, in bytes.
            out: The file to write; its earlier content is removed.
            progress: Called with the number of bytes that were received since the previous call; a
                negative number takes back the bytes of a failed attempt.

        Raises:
            RegistryError: The registry does not answer, or sends other content.
        """
        url = f"/v2/{repository}/blobs/{digest}"
        for attempt in range(connection.ATTEMPTS):
            out.seek(0)
            out.truncate()
            received, count = hashlib.sha256(), _Count(progress)
            response = self._request("GET", url, repository, expected=(200,), stream=True)
            try:
                for chunk in response.stream(size):
                    received.update(chunk)
                    out.write(chunk)
                    count.add(len(chunk))
            except HTTPError as e:
                if attempt == connection.ATTEMPTS - 1 or current().left() <= 0:
                    raise self._connection.unreachable(f"GET {repository}@{digest}", e) from e
                self._connection.pause(attempt)
                count.add(-count.total)
                continue
            if f"sha256:{received.hexdigest()}" == digest:
                return
            count.add(-count.total)
        raise self._wrong_content(repository, digest)

    # -- The methods below write manifests and blobs.

    def mount(self, repository: str, digest: str, source: str) -> bool:
        """Make a blob of the repository ``source`` available in ``repository``, without a transfer.

        Returns:
            True if the blob is available; False if it has to be uploaded.

        Raises:
            RegistryError: The registry does not answer.
        """
        if (repository, source) in self._unmountable:
            return False
        query = urlencode({"mount": digest, "from": source})
        url = f"/v2/{repository}/blobs/uploads/"
        try:
            response = self._connection.request(
                "POST",
                f"{url}?{query}",
                (*self._scopes(repository), f"repository:{source}:pull"),
                expected=(201, 202),
            )
        except RefusalError:  # The caller uploads the blob, if it has the right to push.
            self._unmountable.add((repository, source))
            return False
        if response.status == 202:  # The registry has begun an upload instead; cancel it.
            location = self._connection.location(response, url)
            self._request("DELETE", location, repository, expected=range(200, 500))
        return response.status == 201

    @operation()
    def upload(
        self,
        repository: str,
        digest: str,
        size: int,
        content: IO[bytes],
        progress: Callable[[int], None] = lambda sent: None,
    ) -> None:
        """Upload a blob in one request; after a failure, send the missing bytes in chunks.

        Not every registry accepts chunks. If chunks are refused, the upload begins again.

        Args:
            repository: The repository to upload to.
            digest: The digest of the content.
            size: The size of the content, in bytes.
            content: The file with the content, which is read from the beginning.
            progress: Called with the number of bytes that were sent since the previous call; a
                negative number takes back bytes that were lost.

        Raises:
            RegistryError: The registry does not answer, or refuses the upload.
        """
        action = f"upload of {repository}@{digest}"
        may_resume = True
        blob = _Blob(repository, digest, size, content, _Count(progress))
        for attempt in range(connection.ATTEMPTS):
            location = self._begin_upload(repository)
            response: Response | None = None
            try:
                response = self._put_blob(blob, location)
                if response.status in (201, 204):
                    return
                failure = self._connection.refused("PUT", location, response)
            except HTTPError as e:
                failure = self._connection.unreachable(action, e)
                if current().left() <= 0:
                    raise failure from e
            if response is not None and response.status not in _LOST and not is_busy(response):
                raise failure
            if self.has_blob(repository, digest):
                return  # The response was lost, or a concurrent upload has finished first.
            if attempt == connection.ATTEMPTS - 1:
                raise failure
            self._connection.pause(attempt, response)
            if may_resume:
                may_resume = False
                if self._upload_rest(blob, location):
                    return
            blob.sent.add(-blob.sent.total)
        raise AssertionError("unreachable")

    def _put_blob(self, blob: _Blob, location: str) -> Response:
        def blocks() -> Iterator[bytes]:
            blob.content.seek(0)
            while block := blob.content.read(_BLOCK):
                yield block
                blob.sent.add(len(block))
                current().restart()

        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        url = _with_digest(location, blob.digest)
        scopes = self._scopes(blob.repository)
        return self._connection.request_once("PUT", url, scopes, body=blocks, headers=headers)

    def _upload_rest(self, blob: _Blob, location: str) -> bool:
        """Send the rest of an upload in chunks; return False if the upload must begin again."""
        failures = 0
        resumed = self._resume(blob.repository, location)
        if resumed is None:
            return False
        location, received = resumed
        blob.sent.add(received - blob.sent.total)
        while blob.sent.total < blob.size:
            blob.content.seek(blob.sent.total)
            chunk = blob.content.read(min(_UPLOAD_CHUNK, blob.size - blob.sent.total))
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{blob.sent.total}-{blob.sent.total + len(chunk) - 1}",
                "Content-Length": str(len(chunk)),
            }
            response: Response | None = None
            try:
                response = self._connection.request_once(
                    "PATCH", location, self._scopes(blob.repository), body=chunk, headers=headers
                )
            except HTTPError as e:
                failure = self._connection.unreachable(
                    f"upload of {blob.repository}@{blob.digest}", e
                )
            else:
                if response.status in (201, 202, 204):
                    location = self._connection.location(response, location)
                    blob.sent.add(len(chunk))
                    current().restart()
                    continue
                if response.status != 416 and not is_busy(response):
                    return False
                failure = self._connection.refused("PATCH", location, response)
            failures += 1
            if failures >= connection.ATTEMPTS or current().left() <= 0:
                raise failure
            self._connection.pause(failures - 1, response)
            resumed = self._resume(blob.repository, location)
            if resumed is None:
                return False
            location, received = resumed
            blob.sent.add(received - blob.sent.total)
        self._finish_upload(blob.repository, blob.digest, location)
        return True

    def put_manifest(self, repository: str, tag: str, data: bytes, media_type: str) -> str:
        """Push the manifest of an image under a tag, read it back, and return its digest.

        The registry must have all blobs of the image.

        Raises:
            RegistryError: The registry does not answer, refuses the manifest, or stores another
                content.
        """
        url = f"/v2/{repository}/manifests/{tag}"
        headers = {"Content-Type": media_type}
        for attempt in range(_CHECKS):
            response = self._request(
                "PUT",
                url,
                repository,
                body=data,
                headers=headers,
                expected=(200, 201, 202, 204, 400),
            )
            if response.status != 400:
                break
            # The registry may have read a file that a concurrent push of the same content was
            # writing.
            self._connection.pause(attempt)
        else:
            raise self._connection.refused("PUT", url, response)
        digest = sha256(data)
        stored = self.manifest(repository, digest)
        if stored is None or stored.data != data:
            raise RegistryError(
                f"the registry {self.name} has not stored the manifest of {repository}:{tag} as it"
                " was pushed"
            )
        return digest

    def _scopes(self, repository: str) -> Scopes:
        actions = "pull,push" if repository == self._push_to else "pull"
        return (f"repository:{repository}:{actions}",)

    def _request(self, method: str, url: str, repository: str, **options: Any) -> Response:
        return self._connection.request(method, url, self._scopes(repository), **options)

    def _begin_upload(self, repository: str) -> str:
        url = f"/v2/{repository}/blobs/uploads/"
        response = self._request("POST", url, repository, expected=(202,))
        return self._connection.location(response, url)

    def _resume(self, repository: str, location: str) -> tuple[str, int] | None:
        """Return an upload's URL and the number of received bytes; None if the upload is lost."""
        response = self._request("GET", location, repository, expected=range(200, 500))
        found = re.match(r"\D*\d+-(\d{1,18})$", response.headers.get("Range", ""))
        if response.status not in (200, 204) or not found:
            return None
        last = int(found[1])
        # Registries report 0-0 not only for one byte, but also for an upload without any bytes.
        return self._connection.location(response, location), last + 1 if last else 0

    def _finish_upload(self, repository: str, digest: str, location: str) -> None:
        url = _with_digest(location, digest)
        response = self._request("PUT", url, repository, expected=(201, 204, 400, 404))
        if response.status not in (400, 404):
            return
        # If the blob exists, the upload is complete: the response to an earlier attempt was lost,
        # or a concurrent upload has finished first.
        for attempt in range(_CHECKS):
            if self.has_blob(repository, digest):
                return
            self._connection.pause(attempt)
        raise self._connection.refused("PUT", url, response)

    def _wrong_content(self, repository: str, digest: str) -> RegistryError:
        return RegistryError(
            f"the registry {self.name} sends content for {repository}@{digest} that has another"
            " digest"
        )


class _Count:
    """Counts the bytes of a transfer, and reports every change."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self.total = 0
        self._report = report

    def add(self, count: int) -> None:
        self.total += count
        self._report(count)


@dataclass(frozen=True)
class _Blob:
    """A blob that is uploaded.

    Args:
        repository: The repository to upload to.
        digest: The digest of the content.
        size: The size of the content, in bytes.
        content: The file with the content.
        sent: Counts the bytes that were sent.
    """

    repository: str
    digest: str
    size: int
    content: IO[bytes]
    sent: _Count


def _with_digest(location: str, digest: str) -> str:
    """Return the URL that completes an upload."""
    separator = "&" if urlsplit(location).query else "?"
    return f"{location}{separator}{urlencode({'digest': digest})}"
