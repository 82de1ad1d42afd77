"""Client for the manifests and blobs of a registry, by the OCI distribution API.

The API is specified in https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from urllib3.exceptions import HTTPError, ReadTimeoutError

from torchx_workspace_docker.registry import connection
from torchx_workspace_docker.registry.authorization import Scopes
from torchx_workspace_docker.registry.connection import Connection, is_busy, is_final
from torchx_workspace_docker.registry.errors import RefusalError, RegistryError
from torchx_workspace_docker.registry.manifests import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    Manifest,
    parse_config,
    sha256,
)
from torchx_workspace_docker.registry.transport import Response

#: Maximum number of attempts to push a manifest, if the registry refuses the request. A concurrent
#: push of the same content can cause such a refusal.
_CHECKS = 3
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
            received = hashlib.sha256()
            response = self._request("GET", url, repository, expected=(200,), stream=True)
            try:
                for chunk in response.stream(size):
                    received.update(chunk)
                    out.write(chunk)
                    progress(len(chunk))
            except HTTPError as e:
                if is_final(e, attempt):
                    raise self._connection.unreachable(f"GET {repository}@{digest}", e) from e
                self._connection.pause(attempt)
            if f"sha256:{received.hexdigest()}" == digest:
                return
            progress(-out.tell())
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

    def upload(
        self,
        repository: str,
        digest: str,
        size: int,
        content: IO[bytes],
        progress: Callable[[int], None] = lambda sent: None,
    ) -> None:
        """Upload a blob in one request; after a failure, begin again with the first byte.

        A registry need not keep the bytes of a broken request: the registry of the CNCF forgets the
        upload.

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
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        scopes = self._scopes(repository)
        content.seek(0)

        def blocks() -> Iterator[bytes]:
            progress(-content.tell())
            content.seek(0)
            while block := content.read(_BLOCK):
                progress(len(block))
                yield block

        for attempt in range(connection.ATTEMPTS):
            url = _with_digest(self._begin_upload(repository), digest)
            response: Response | None = None
            try:
                response = self._connection.request_once(
                    "PUT", url, scopes, body=blocks, headers=headers
                )
                if response.status in (201, 204):
                    return
                failure = self._connection.refused("PUT", url, response)
                may_retry = response.status in _LOST or is_busy(response)
            except HTTPError as e:
                failure = self._connection.unreachable(f"upload of {repository}@{digest}", e)
                may_retry = not isinstance(e, ReadTimeoutError)
            # The response may be lost, or a concurrent upload may have finished first.
            if may_retry and self.has_blob(repository, digest):
                return
            if not may_retry or attempt == connection.ATTEMPTS - 1:
                raise failure
            self._connection.pause(attempt, response)

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

    def _wrong_content(self, repository: str, digest: str) -> RegistryError:
        return RegistryError(
            f"the registry {self.name} sends content for {repository}@{digest} that has another"
            " digest"
        )


def _with_digest(location: str, digest: str) -> str:
    """Return the URL that completes an upload."""
    separator = "&" if urlsplit(location).query else "?"
    return f"{location}{separator}{urlencode({'digest': digest})}"
