"""Client for the manifests and blobs of a registry, by the OCI distribution API.

The API is specified in https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from urllib3.exceptions import HTTPError

from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry import connection
from torchx_workspace_docker.registry.connection import Connection, is_busy
from torchx_workspace_docker.registry.errors import RegistryError

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST_TYPES = (OCI_MANIFEST, DOCKER_MANIFEST)

#: How often to retry or check after a refusal that a concurrent push of the same content may cause.
_CHECKS = 3
#: The size of the chunks of an upload, in bytes.
_UPLOAD_CHUNK = 8 << 20
_DOWNLOAD_CHUNK = 1 << 20


class Registry:
    """Client for one registry.

    Args:
        reference: Any image in the registry; only its registry is used.
        insecure: Whether the registry may be reached without TLS.
        sleep: Function that waits for a number of seconds, between two attempts.
    """

    def __init__(
        self,
        reference: Reference,
        insecure: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = reference.registry
        self._connection = Connection(reference, insecure, sleep)
        self._request = self._connection.request

    # -- reading

    def manifest(self, repository: str, version: str) -> tuple[bytes, str, str] | None:
        """Return content, media type and digest of a manifest, or None if there is none.

        Args:
            repository: The repository.
            version: A tag or a digest.

        Raises:
            RegistryError: The registry does not answer, refuses the request, or sends a manifest
                with another digest.
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
        data = response.data
        digest = _sha256(data)
        if version.startswith("sha256:") and version != digest:
            raise self._wrong_content(repository, version)
        kind = json.loads(data).get("mediaType") or response.headers.get("Content-Type", "")
        return data, str(kind).partition(";")[0], digest

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return True if a repository has a blob."""
        url = f"/v2/{repository}/blobs/{digest}"
        return self._request("HEAD", url, repository, expected=(200, 404)).status == 200

    def json_blob(self, repository: str, digest: str) -> dict[str, Any]:
        """Return the content of a blob that is a JSON object."""
        url = f"/v2/{repository}/blobs/{digest}"
        data = self._request("GET", url, repository, expected=(200,)).data
        if _sha256(data) != digest:
            raise self._wrong_content(repository, digest)
        content: dict[str, Any] = json.loads(data)
        return content

    def download(self, repository: str, digest: str, out: IO[bytes]) -> None:
        """Write the content of a blob to a file, and check its digest."""
        url = f"/v2/{repository}/blobs/{digest}"
        for attempt in range(connection.ATTEMPTS):
            out.seek(0)
            out.truncate()
            received = hashlib.sha256()
            response = self._request("GET", url, repository, expected=(200,), stream=True)
            try:
                for chunk in response.stream(_DOWNLOAD_CHUNK, decode_content=False):
                    received.update(chunk)
                    out.write(chunk)
            except HTTPError as e:
                if attempt == connection.ATTEMPTS - 1:
                    raise self._connection.unreachable(f"GET {repository}@{digest}", e) from e
                self._connection.pause(attempt)
                continue
            finally:
                response.close()
            if f"sha256:{received.hexdigest()}" == digest:
                return
        raise self._wrong_content(repository, digest)

    # -- writing

    def mount(self, repository: str, digest: str, source: str) -> bool:
        """Make a blob of the repository ``source`` available in ``repository``, without a transfer.

        Returns:
            True if the blob is available; False if it has to be uploaded.
        """
        query = urlencode({"mount": digest, "from": source})
        url = f"/v2/{repository}/blobs/uploads/"
        response = self._request(
            "POST", f"{url}?{query}", repository, expected=(201, 202), source=source
        )
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
        """Upload a blob in chunks; after a failure, resume where the registry stopped receiving.

        Args:
            repository: The repository to upload to.
            digest: The digest of the content.
            size: The size of the content, in bytes.
            content: The file with the content, which is read from the beginning.
            progress: Called with the number of bytes that have arrived since the previous call.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        failures = 0
        location, sent = self._begin_upload(repository), 0
        while sent < size:
            content.seek(sent)
            chunk = content.read(min(_UPLOAD_CHUNK, size - sent))
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{sent}-{sent + len(chunk) - 1}",
                "Content-Length": str(len(chunk)),
            }
            response, failure = None, None
            try:
                response = self._connection.request_once(
                    "PATCH", location, repository, body=chunk, headers=headers
                )
            except HTTPError as e:
                failure = self._connection.unreachable(f"upload of {repository}@{digest}", e)
            else:
                if response.status in (201, 202, 204):
                    location = self._connection.location(response, location)
                    sent += len(chunk)
                    progress(len(chunk))
                    continue
                failure = self._connection.refused("PATCH", location, response)
                if response.status not in (404, 416) and not is_busy(response):
                    raise failure
            failures += 1
            if failures >= connection.ATTEMPTS:
                raise failure
            self._connection.pause(failures - 1, response)
            location, received = self._resume_upload(repository, location)
            progress(max(received - sent, 0))
            sent = received
        self._finish_upload(repository, digest, location)

    def put_manifest(self, repository: str, tag: str, data: bytes, media_type: str) -> str:
        """Push the manifest of an image under a tag, check it, and return its digest.

        The registry must have all blobs of the image.
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
        digest = _sha256(data)
        stored = self.manifest(repository, digest)
        if stored is None or stored[0] != data:
            raise RegistryError(
                f"the registry {self.name} has not stored the manifest of {repository}:{tag} as it"
                " was pushed"
            )
        return digest

    def _begin_upload(self, repository: str) -> str:
        url = f"/v2/{repository}/blobs/uploads/"
        response = self._request("POST", url, repository, expected=(202,))
        return self._connection.location(response, url)

    def _resume_upload(self, repository: str, location: str) -> tuple[str, int]:
        """Return URL and received bytes of an upload; if the upload is lost, begin a new one."""
        response = self._request("GET", location, repository, expected=range(200, 500))
        if response.status not in (200, 204):
            return self._begin_upload(repository), 0
        found = re.match(r"\D*\d+-(\d+)", response.headers.get("Range", ""))
        last = int(found[1]) if found else 0
        return self._connection.location(response, location), last + 1 if last else 0

    def _finish_upload(self, repository: str, digest: str, location: str) -> None:
        separator = "&" if urlsplit(location).query else "?"
        url = f"{location}{separator}{urlencode({'digest': digest})}"
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


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
