"""The configuration of an image to which a layer is added."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Mapping
from typing import Any

from torchx_specs.version import __version__

LABEL_VERSION = "torchx.pytorch.org/version"
#: What the workspace was added to, by its digest: if that changes, the image is made anew.
LABEL_BASE = "torchx.pytorch.org/base"

_NO_TIME = "1970-01-01T00:00:00Z"


def working_folder(config: Mapping[str, Any]) -> str:
    """Returns where an image's programs start, and where the workspace goes."""
    return posixpath.normpath("/" + str(config.get("WorkingDir") or "").lstrip("/"))


def patched_config(base: Mapping[str, Any], diff_id: str, base_digest: str) -> dict[str, Any]:
    """Returns the configuration of an image with one more layer.

    Args:
        base: the configuration of what it is added to
        diff_id: digest of the layer without compression
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
    rootfs["diff_ids"] = [*(rootfs.get("diff_ids") or []), diff_id]
    config["rootfs"] = rootfs
    config["history"] = [
        *(config.get("history") or []),
        {"created": _NO_TIME, "created_by": "torchx workspace"},
    ]
    for transient in ("container", "container_config", "id", "parent"):
        config.pop(transient, None)
    return config
