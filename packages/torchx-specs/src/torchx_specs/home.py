"""The directory in which TorchX keeps its own files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def TORCHX_HOME(*subdirs: str) -> Path:  # noqa: N802 - a documented name
    """Returns ``$TORCHX_HOME`` (``~/.torchx`` unless set) or a folder below it, made if missing
    (mode 0700).

    Raises:
        ConfigError: if it cannot be made
    """
    from pathlib import Path

    from torchx_specs.errors import ConfigError

    path = home_path(*subdirs)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as e:
        raise ConfigError(
            f"cannot make {path}: {e.strerror or e}; set TORCHX_HOME to a folder you can write to"
        ) from None
    return Path(path)


def home_path(*subdirs: str) -> str:
    """Returns the path that :func:`TORCHX_HOME` returns, and makes nothing."""
    base = os.environ.get("TORCHX_HOME") or os.path.join(os.path.expanduser("~"), ".torchx")
    return os.path.join(base, *subdirs)
