"""The configuration of an image to which layers are added."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from torchx_specs.version import __version__

LABEL_VERSION = "torchx.pytorch.org/version"
#: What the workspace was added to, by its digest: if that changes, the image is made anew.
LABEL_BASE = "torchx.pytorch.org/base"

_NO_TIME = "1970-01-01T00:00:00Z"


def working_folder(config: Mapping[str, Any]) -> str:
    """Returns where an image's programs start, and where the workspace goes."""
    return posixpath.normpath("/" + str(config.get("WorkingDir") or "").lstrip("/"))


def patched_config(
    base: Mapping[str, Any], diff_ids: Sequence[str], base_digest: str
) -> dict[str, Any]:
    """Returns the configuration of an image with more layers.

    Args:
        base: the configuration of what they are added to
        diff_ids: digests of the layers without compression
        base_digest: digest of what it is added to
    """
    config = copy.deepcopy(dict(base))
    run = dict(config.get("config") or {})
    run["Labels"] = {
        **(run.get("Labels") or {}),
        LABEL_VERSION: __version__,
        LABEL_BASE: base_digest,
    }
    config["config"] = run
    config["created"] = _NO_TIME
    rootfs = dict(config.get("rootfs") or {"type": "layers", "diff_ids": []})
    rootfs["diff_ids"] = [*(rootfs.get("diff_ids") or []), *diff_ids]
    config["rootfs"] = rootfs
    config["history"] = [
        *(config.get("history") or []),
        *({"created": _NO_TIME, "created_by": "torchx workspace"} for _ in diff_ids),
    ]
    for transient in ("container", "container_config", "id", "parent"):
        config.pop(transient, None)
    return config
