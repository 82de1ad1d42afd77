"""The configuration of an image to which layers are added.

The format is specified in https://github.com/opencontainers/image-spec/blob/main/config.md.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from torchx_specs.version import __version__

LABEL_VERSION = "torchx.pytorch.org/version"
#: The label with the digest of the base image; if that digest changes, the image is built again.
LABEL_BASE = "torchx.pytorch.org/base"

#: The label with a digest of the workspace's path and the base image's name. Only images that an
#: engine builds have this label. A pruner keeps the newest image with each value.
LABEL_WORKSPACE = "torchx.pytorch.org/workspace"
#: The entry in an image's history for a layer that TorchX added.
CREATED_BY = "torchx workspace"

_NO_TIME = "1970-01-01T00:00:00Z"


def working_folder(config: Mapping[str, Any]) -> str:
    """Return the working directory of an image, to which the workspace is added."""
    return posixpath.normpath("/" + str(config.get("WorkingDir") or "").lstrip("/"))


def patched_config(
    base: Mapping[str, Any],
    diff_ids: Sequence[str],
    base_digest: str,
    created: str = _NO_TIME,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the configuration of an image with more layers than its base.

    Args:
        base: The configuration of the base image.
        diff_ids: The digests of the added layers before compression.
        base_digest: The digest of the base image.
        created: The date of the image (RFC 3339). The default is a constant, so that equal
            inputs give equal bytes.
        labels: More labels of the image.
    """
    run = base.get("config") or {}
    rootfs = base.get("rootfs") or {"type": "layers"}
    own = {LABEL_VERSION: __version__, LABEL_BASE: base_digest, **(labels or {})}
    config = {
        **base,
        "config": {**run, "Labels": {**(run.get("Labels") or {}), **own}},
        "created": created,
        "rootfs": {**rootfs, "diff_ids": [*(rootfs.get("diff_ids") or []), *diff_ids]},
        "history": [
            *(base.get("history") or []),
            *({"created": created, "created_by": CREATED_BY} for _ in diff_ids),
        ],
    }
    for transient in ("container", "container_config", "id", "parent"):
        config.pop(transient, None)
    return config
