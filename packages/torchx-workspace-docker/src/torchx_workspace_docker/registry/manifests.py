"""Manifests and configurations of images, checked when they are read.

The formats are specified in https://github.com/opencontainers/image-spec.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torchx_specs.schedulers.request_checks import text_problem
from torchx_workspace_docker.registry.transport import RegistryError

T = TypeVar("T")

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST_TYPES = (OCI_MANIFEST, DOCKER_MANIFEST)

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_MAX_MEDIA_TYPE = 255
_MAX_SIZE = 1 << 50
#: Container runtimes accept fewer layers: Docker 127, containerd about 500.
_MAX_DESCRIPTORS = 1000
#: The longest path on Linux, in characters.
_MAX_PATH = 4096


@dataclass(frozen=True)
class Manifest:
    """The manifest of an image, or an index of manifests.

    Args:
        data: The bytes of the manifest.
        content: The parsed manifest. An index has a list ``manifests`` of descriptors; an image has
            a descriptor ``config`` and a list ``layers`` of descriptors, and no ``manifests``. All
            descriptors have been checked.
        media_type: The media type.
        digest: The digest of ``data``.
    """

    data: bytes
    content: Mapping[str, Any]
    media_type: str
    digest: str

    @property
    def is_index(self) -> bool:
        """Whether this is an index."""
        return "manifests" in self.content

    @classmethod
    def parse(cls, data: bytes, name: str, content_type: str) -> Manifest:
        """Parse a manifest.

        Args:
            data: The bytes of the manifest.
            name: The name of the image, for errors.
            content_type: The media type of a manifest that does not state its own.

        Raises:
            RegistryError: The manifest is not valid.
        """
        content = _parse_object(data, name, "manifest")
        media_type = content.get("mediaType") or content_type
        if not isinstance(media_type, str):
            raise _invalid(name, "manifest", "mediaType is not a text")
        media_type = media_type.partition(";")[0].strip()
        # The client sends the media type in a header when it pushes the image.
        if media_type and (
            len(media_type) > _MAX_MEDIA_TYPE or not _MEDIA_TYPE.fullmatch(media_type)
        ):
            raise _invalid(name, "manifest", f"'{media_type:.80}' is not a media type")
        if content.get("manifests") is not None or media_type in INDEX_TYPES:
            content["manifests"] = _descriptors(content, "manifests", name)
            for entry in content["manifests"]:
                _object(entry, "platform", name)
        elif "config" in content and "layers" in content:
            content.pop("manifests", None)
            _check_descriptor(content["config"], name)
            content["layers"] = _descriptors(content, "layers", name)
        else:
            raise RegistryError(
                f"{name} is not an image to which a layer can be added (media type {media_type})"
            )
        return cls(data, content, media_type, sha256(data))


def parse_config(data: bytes, name: str) -> dict[str, Any]:
    """Parse the configuration of an image.

    Args:
        data: The bytes of the configuration.
        name: The name of the blob, for errors.

    Raises:
        RegistryError: The configuration is not valid.
    """
    config = _parse_object(data, name, "image configuration")
    run = _object(config, "config", name)
    labels = _object(run, "Labels", name)
    if not all(isinstance(value, str) for value in labels.values()):
        raise _invalid(name, "image configuration", "Labels has a value that is not a text")
    if not _is_path(run.get("WorkingDir") or ""):
        raise _invalid(name, "image configuration", "WorkingDir is not a path")
    _list(_object(config, "rootfs", name), "diff_ids", name)
    _list(config, "history", name)
    return config


def sha256(data: bytes) -> str:
    """Return the digest of a blob, ``sha256:...``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _parse_object(data: bytes, name: str, kind: str) -> dict[str, Any]:
    try:
        content: Any = json.loads(data)
        json.dumps(content)  # the new image has the content, too
    except ValueError:
        raise _invalid(name, kind, "it is not JSON") from None
    except RecursionError:
        raise _invalid(name, kind, "it has too many levels of objects and lists") from None
    if not isinstance(content, dict):
        raise _invalid(name, kind, "it is not a JSON object")
    return content


def _is_path(value: object) -> bool:
    """Return True if a value can be a path in an image; JSON can contain unpaired surrogates."""
    if not isinstance(value, str) or len(value) > _MAX_PATH:
        return False
    return not text_problem(value, "an image")


def _object(parent: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    return _part(parent, key, name, dict, "an object")


def _list(parent: Mapping[str, Any], key: str, name: str) -> list[Any]:
    return _part(parent, key, name, list, "a list")


def _part(parent: Mapping[str, Any], key: str, name: str, kind: type[T], wanted: str) -> T:
    """Return a value of an object; an empty one if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise _invalid(name, "content", f"{key} is not {wanted}")
    return value


def _descriptors(parent: Mapping[str, Any], key: str, name: str) -> list[Any]:
    """Return a list of valid descriptors; null, as Go writes an empty list, gives an empty list."""
    entries = _list(parent, key, name)
    if len(entries) > _MAX_DESCRIPTORS:
        raise _invalid(name, "manifest", f"{key} has more than {_MAX_DESCRIPTORS} entries")
    for entry in entries:
        _check_descriptor(entry, name)
    return entries


def _check_descriptor(entry: object, name: str) -> None:
    if not isinstance(entry, dict):
        raise _invalid(name, "manifest", "a descriptor is not an object")
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _invalid(name, "manifest", f"'{digest!s:.80}' is not a digest (sha256:...)")
    if type(size) is not int or not 0 <= size < _MAX_SIZE:
        raise _invalid(name, "manifest", f"'{size!s:.80}' is not the size of a blob")


def _invalid(name: str, kind: str, problem: str) -> RegistryError:
    return RegistryError(f"the {kind} of {name} is not valid: {problem}")
