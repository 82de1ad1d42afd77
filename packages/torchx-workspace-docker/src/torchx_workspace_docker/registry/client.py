"""Client for the manifests and blobs of a repository, by the OCI distribution API.

The API is specified in https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from urllib3.exceptions import HTTPError

from torchx_workspace_docker.registry.connection import Connection, Scopes
from torchx_workspace_docker.registry.manifests import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    Manifest,
    parse_config,
    sha256,
)
from torchx_workspace_docker.registry.transport import (
    RefusalError,
    RegistryError,
    Response,
    unreachable,
)

_BLOCK = 1 << 20
#: The HTTP statuses after which an upload begins again with the first byte.
_LOST = frozenset({400, 404, 416})


class Repository:
    """Client for one repository of a registry.

    Args:
        connection: The connection to the registry.
        name: The repository.
        push: Whether images are pushed. Otherwise only the right to pull is requested, because some
            registries refuse a token with rights that the user lacks.
    """

    def __init__(self, connection: Connection, name: str, push: bool = False) -> None:
        self.connection = connection
        self._name = name
        self._scopes: Scopes = (f"repository:{name}:{'pull,push' if push else 'pull'}",)
        self._mounts = True

    # -- The methods below read manifests and blobs.

    def manifest(self, version: str) -> Manifest | None:
        """Return a manifest, or None if the repository does not have it.

        Args:
            version: A tag or a digest.

        Raises:
            RegistryError: The registry does not answer, refuses the request, or sends a manifest
                that is not valid or has another digest.
        """
        response = self._request(
            "GET",
            f"manifests/{version}",
            headers={"Accept": ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))},
            expected=(200, 404),
        )
        if response.status == 404:
            return None
        digest = sha256(response.data)
        if version.startswith("sha256:") and version != digest:
            raise self._wrong_content(version)
        content_type = response.headers.get("Content-Type", "")
        return Manifest.parse(response.data, self._full_name(digest), content_type)

    def has_blob(self, digest: str) -> bool:
        """Return True if the repository has a blob."""
        return self._request("HEAD", f"blobs/{digest}", expected=(200, 404)).status == 200

    def image_config(self, digest: str) -> dict[str, Any]:
        """Return the configuration of an image, which is a blob.

        Raises:
            RegistryError: The registry does not have the blob, or sends content that is not valid
                or has another digest.
        """
        data = self._request("GET", f"blobs/{digest}", expected=(200,)).data
        if sha256(data) != digest:
            raise self._wrong_content(digest)
        return parse_config(data, self._full_name(digest))

    def download(
        self,
        digest: str,
        size: int,
        out: IO[bytes],
        progress: Callable[[int], None] = lambda received: None,
    ) -> None:
        """Write the content of a blob to a file, and check size and digest.

        Args:
            digest: The digest of the blob.
            size: The size of the blob, in bytes.
            out: The file to write; its earlier content is removed.
            progress: Called with the number of bytes that were received since the previous call; a
                negative number takes back the bytes of a failed attempt.

        Raises:
            RegistryError: The registry does not answer, or sends other content.
        """

        def attempt() -> None:
            out.seek(0)
            out.truncate()
            received = hashlib.sha256()
            path = f"blobs/{digest}"
            response = self._request_once("GET", path, expected=(200,), stream=True)
            try:
                for chunk in response.stream(size):
                    received.update(chunk)
                    out.write(chunk)
                    progress(len(chunk))
                if f"sha256:{received.hexdigest()}" != digest:
                    raise self._wrong_content(digest)
            except HTTPError as e:
                progress(-out.tell())
                raise unreachable(self.connection.registry, f"GET {path}", e) from e
            except RegistryError:
                progress(-out.tell())
                raise

        self.connection.retry(attempt)

    # -- The methods below write manifests and blobs.

    def mount(self, digest: str, source: str) -> bool:
        """Make a blob of the repository ``source`` available here, without a transfer.

        Returns:
            True if the blob is available; False if it has to be uploaded.

        Raises:
            RegistryError: The registry does not answer.
        """
        if not self._mounts:
            return False
        path = f"blobs/uploads/?{urlencode({'mount': digest, 'from': source})}"
        scopes = (*self._scopes, f"repository:{source}:pull")
        try:
            response = self._request("POST", path, scopes=scopes, expected=(201, 202))
        except RefusalError:  # The caller uploads the blob, if it has the right to push.
            self._mounts = False
            return False
        if response.status == 202:  # The registry has begun an upload instead; cancel it.
            location = self.connection.location(response, f"/v2/{self._name}/blobs/uploads/")
            self._request("DELETE", location, expected=range(200, 500))
        return response.status == 201

    def upload(
        self,
        digest: str,
        size: int,
        content: IO[bytes],
        progress: Callable[[int], None] = lambda sent: None,
    ) -> None:
        """Upload a blob in one request; after a failure, begin again with the first byte.

        A registry need not keep the bytes of a broken request: the registry of the CNCF forgets the
        upload.

        Args:
            digest: The digest of the content.
            size: The size of the content, in bytes.
            content: The file with the content, which is read from the beginning.
            progress: Called with the number of bytes that were sent since the previous call; a
                negative number takes back bytes that were lost.

        Raises:
            RegistryError: The registry does not answer, or refuses the upload.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        content.seek(0)

        def blocks() -> Iterator[bytes]:
            progress(-content.tell())
            content.seek(0)
            while block := content.read(_BLOCK):
                progress(len(block))
                yield block

        def attempt() -> None:
            begun = self._request("POST", "blobs/uploads/", expected=(202,))
            location = self.connection.location(begun, f"/v2/{self._name}/blobs/uploads/")
            separator = "&" if urlsplit(location).query else "?"
            url = f"{location}{separator}{urlencode({'digest': digest})}"
            try:
                self._request_once("PUT", url, body=blocks, headers=headers, expected=(201, 204))
            except RegistryError as e:
                e.may_retry = e.may_retry or e.status in _LOST
                # The response may be lost, or a concurrent upload may have finished first.
                if not e.may_retry or not self.has_blob(digest):
                    raise

        self.connection.retry(attempt)

    def put_manifest(self, tag: str, data: bytes, media_type: str) -> str:
        """Push the manifest of an image under a tag, read it back, and return its digest.

        The repository must have all blobs of the image.

        Raises:
            RegistryError: The registry does not answer, refuses the manifest, or stores another
                content.
        """

        def attempt() -> None:
            try:
                headers = {"Content-Type": media_type}
                self._request_once("PUT", f"manifests/{tag}", body=data, headers=headers)
            except RegistryError as e:
                # 400: the registry may have read a file that a concurrent push of the same content
                # was writing.
                e.may_retry = e.may_retry or e.status == 400
                raise

        self.connection.retry(attempt)
        digest = sha256(data)
        stored = self.manifest(digest)
        if stored is None or stored.data != data:
            raise RegistryError(
                f"the registry {self.connection.registry} has not stored the manifest of"
                f" {self._name}:{tag} as it was pushed"
            )
        return digest

    def _request_once(
        self, method: str, path: str, *, scopes: Scopes | None = None, **options: Any
    ) -> Response:
        """Send a request to a path of the repository, or to an absolute URL."""
        url = path if "://" in path else f"/v2/{self._name}/{path}"
        return self.connection.request(method, url, scopes or self._scopes, **options)

    def _request(self, method: str, path: str, **options: Any) -> Response:
        return self.connection.retry(partial(self._request_once, method, path, **options))

    def _full_name(self, digest: str) -> str:
        return f"{self.connection.registry}/{self._name}@{digest}"

    def _wrong_content(self, digest: str) -> RegistryError:
        return RegistryError(
            f"the registry {self.connection.registry} sends content for {self._name}@{digest} that"
            " has another digest",
            may_retry=True,
        )
